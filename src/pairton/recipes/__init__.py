"""Built-in recipes. Their name is the path of the YAML file in this folder, without the suffix."""

from __future__ import annotations

from pathlib import Path

from pairton.errors import ConfigError, nearest

__all__ = ["builtin_recipes", "find_recipe"]


def builtin_recipes() -> dict[str, Path]:
    """The names and files of the built-in recipes.

    >>> list(builtin_recipes())[:2]
    ['any', 'authors']
    """
    folder = Path(__file__).parent
    recipes = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.yaml")}
    return dict(sorted(recipes.items(), key=lambda entry: ("/" in entry[0], entry[0])))


def find_recipe(name: str | Path, folder: Path | None = None) -> Path:
    """The file of a recipe, from a built-in name or a path, which is relative to `folder` if that is given."""
    builtin = builtin_recipes()
    if str(name) in builtin:
        return builtin[str(name)]
    path = (folder or Path()) / name
    if not path.is_file():
        hint = nearest(str(name), builtin)
        raise ConfigError(f"no recipe {str(name)!r}: neither a file nor built in ({', '.join(builtin)}){hint}")
    return path
