"""Options that several verbs share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pairton._common.atomic import new_output
from pairton.errors import ConfigError

if TYPE_CHECKING:
    from pairton.models.engines import Model

__all__ = [
    "DECODINGS",
    "answer_options",
    "as_the_model",
    "completing",
    "cut_options",
    "force_option",
    "parse_map",
    "parse_prior",
    "reading_options",
    "refuse_existing",
    "variation_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# folders and files of what is built in; the shell must not wait for imports
BUILT_IN = {
    "card": ("generator/cards", "*.yaml"),
    "model": ("models", "*/model.json"),
    "recipe": ("recipes", "**/*.yaml"),
    "topology": ("topology/builtin", "*.yaml"),
}


def completing(what: str | Iterable[str]) -> Complete:
    """Shell completion with built-in names of a sort, or given names, and with files."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        names = _built_in(what) if isinstance(what, str) else what
        return [*(CompletionItem(n) for n in names if n.startswith(begun)), CompletionItem(begun, type="file")]

    return complete


def _built_in(what: str) -> list[str]:
    if what == "format":
        from pairton.formats import REGISTRY

        return list(REGISTRY)
    if what == "tags":
        from pairton.events.tags import builtin_tables

        return list(builtin_tables())
    folder, pattern = BUILT_IN[what]
    top = Path(__file__).parent.parent / folder
    found = (path.parent if path.suffix == ".json" else path.with_suffix("") for path in top.glob(pattern))
    return sorted([path.relative_to(top).as_posix() for path in found] + ["kinematic"] * (what == "model"))


DECODINGS = ("exact", "steps", "one_shot", "beam", "one_by_one", "hyper")

force_option = click.option("--force", is_flag=True, help="Replace the output if it exists.")


def refuse_existing(output: str | Path | None, force: bool) -> None:
    """Refuse to replace an existing output without --force, from now on until the command ends."""
    if output is not None:
        click.get_current_context().with_resource(new_output(output, force))


_OPTIONS = (
    click.option(
        "--format",
        "format_",
        metavar="NAME",
        help="Format of the input. [recognised from the content]",
        shell_complete=completing("format"),
    ),
    click.option(
        "--topology",
        metavar="NAME|FILE",
        shell_complete=completing("topology"),
        help="Decay tree. [the model's; without a model the file's own, else ttbar_allhad]",
    ),
    click.option(
        "--map",
        "maps",
        multiple=True,
        metavar="OURS=COLUMN,…",
        help="Columns to read: pt=Jet_pt,… for jets; lepton.pt=el_pt,met.phi=met_phi,… for other objects.",
    ),
    click.option("--tree", metavar="NAME", help="Which tree of a ROOT file, or which collection of an HDF5 file."),
    click.option("--units", metavar="GeV|MeV", help="Units of the input. [GeV, which is checked]"),
    click.option(
        "--btag",
        metavar="TAGGER:CUT",
        help="Which score is the b-tag, and above which value a jet is tagged; none: run without tags.",
    ),
    click.option(
        "--tags",
        metavar="NAME|FILE",
        shell_complete=completing("tags"),
        help="Efficiencies of the tagger: a table that `pairton tags` lists, or a YAML file.",
    ),
    click.option(
        "--keep",
        multiple=True,
        metavar="COLUMN,…",
        help="Further columns to copy to the output; * and ? are wildcards.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of the input format; see the page of that format.",
    ),
    click.option("--strict", is_flag=True, help="Treat a bad truth label as an error, not as a warning."),
    click.option(
        "--isolate",
        is_flag=True,
        help="Read files and run models of others in worker processes with limited memory and time.",
    ),
)


# Only for verbs that support variations; `reading_options` parses it.
variation_option = click.option(
    "--variation",
    "variations",
    multiple=True,
    metavar="NAME:pt=COLUMN,mass=COLUMN",
    help="Also reconstruct jets with another calibration; its columns end in _NAME.",
)


def reading_options(command: Command) -> Command:
    """Add the options of reading, and pass them as one keyword `reading`, for `pairton.iterate(**reading)`."""

    @functools.wraps(command)
    def wrapper(*args: Any, format_: str | None, maps: tuple[str, ...], keep: tuple[str, ...], **rest: Any) -> Any:
        from pairton.formats.variations import parse_settings, parse_variations

        reading = {name: rest.pop(name) for name in ("topology", "tree", "units", "btag", "strict")}
        reading |= {"format": format_, "map": parse_map(maps)}
        if (tags := rest.pop("tags")) is not None:
            from pairton.events.tags import load_table

            reading["tags"] = load_table(tags)  # the content, not the name, becomes part of the settings
        if rest.pop("isolate"):
            reading["isolate"] = True
        reading["keep"] = [name.strip() for entry in keep for name in entry.split(",") if name.strip()]
        if settings := rest.pop("settings"):
            reading["settings"] = parse_settings(settings)
        if variations := rest.pop("variations", ()):
            reading["variations"] = parse_variations(variations)
        return command(*args, reading=reading, **rest)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the keywords differ, the command is the same to click


def cut_options(command: Command) -> Command:
    """Add the cuts on objects, and pass them as one keyword `cuts`, for `RunSettings`."""

    @functools.wraps(command)
    def wrapper(*args: Any, jets: str | None, leptons: str | None, no_cuts: bool, **rest: Any) -> Any:
        from pairton.events.domain import chosen_cuts

        return command(*args, cuts=chosen_cuts(jets, leptons, not no_cuts), **rest)

    text = "Use only {} that pass cuts, as in pt>30,abs_eta<2.4; none: use all. [the cuts that are printed]"
    for option in (
        click.option("--no-cuts", "--no-jet-cuts", is_flag=True, hidden=True, help="No cuts on any kind."),
        click.option("--leptons", metavar="CUTS", help=text.format("leptons")),
        click.option("--jets", metavar="CUTS", help=text.format("jets")),
    ):
        wrapper = option(wrapper)
    return wrapper  # type: ignore[return-value]  # the keywords differ, the command is the same to click


def answer_options(command: Command) -> Command:
    """Add the options of the exact decoding, as the keywords `answer`, `allow_absent` and `prior`."""

    def parsed(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, float]:
        return parse_prior(given)

    for option in (
        click.option(
            "--prior",
            multiple=True,
            metavar="PATTERN=FACTOR,…",
            callback=parsed,
            help="How much more frequent patterns are than in training, as in nothing=5 or incomplete=0.",
        ),
        click.option("--allow-absent", is_flag=True, help="Leave out particles that are probably absent."),
        click.option(
            "--answer",
            default="event",
            show_default=True,
            metavar="event|particles",
            help="Maximise the expected number of fully correct events, or of correct particles.",
            shell_complete=completing(("event", "particles")),
        ),
    ):
        command = option(command)
    return command


def as_the_model(reading: dict[str, Any], model: Model) -> None:
    """Set the options of reading to what the model needs. Without --topology, other decay trees are refused."""
    from pairton.formats import options_for

    reading |= options_for(model, reading)


def parse_map(entries: tuple[str, ...]) -> dict[str, str]:
    """Parse `pt=Jet_pt,eta=Jet_eta`, given once or several times.

    >>> parse_map(("pt=Jet_pt,eta=Jet_eta", "weight=w"))
    {'pt': 'Jet_pt', 'eta': 'Jet_eta', 'weight': 'w'}
    """
    found: dict[str, str] = {}
    for part in (part.strip() for entry in entries for part in entry.split(",")):
        ours, equals, column = (piece.strip() for piece in part.partition("="))
        if not (ours and equals and column):
            raise ConfigError(f"map {part!r}: write OUR_NAME=COLUMN, as in pt=Jet_pt,lepton.pt=el_pt")
        if ours in found:
            raise ConfigError(f"map names {ours!r} twice ({found[ours]} and {column}): keep one")
        found[ours] = column
    return found


def parse_prior(entries: tuple[str, ...]) -> dict[str, float]:
    """Parse `nothing=5,t_W=0.5`, given once or several times.

    >>> parse_prior(("nothing=5,t_W=0.5",))
    {'nothing': 5.0, 't_W': 0.5}
    """
    found: dict[str, float] = {}
    for part in (part.strip() for entry in entries for part in entry.split(",")):
        pattern, _, factor = (piece.strip() for piece in part.partition("="))
        try:
            value = float(factor)
        except ValueError:
            raise ConfigError(f"prior {part!r}: write PATTERN=FACTOR, as in nothing=5,t_W=0.5") from None
        if pattern in found:
            raise ConfigError(f"prior names {pattern!r} twice ({found[pattern]:g} and {value:g}): keep one")
        found[pattern] = value
    return found
