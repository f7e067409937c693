"""Working points of taggers in JSON files of correctionlib, as CMS distributes them."""

from __future__ import annotations

import re

from pairton._common.configuration import read_json
from pairton.errors import ConfigError

__all__ = ["working_point"]

# TAGGER:FILE.json:POINT, or TAGGER:FILE.json.gz:POINT
WRITTEN = re.compile(r"(?P<tagger>[^:]+):(?P<file>.+\.json(\.gz)?):(?P<point>[^:]+)")
CORRECTIONS = {  # tagger -> the beginning of its corrections in files of CMS
    "DeepFlavB": "deepJet",
    "DeepB": "deepCSV",
    "PNetB": "particleNet",
    "RobustParTAK4B": "robustParticleTransformer",
    "UParTAK4B": "UParTAK4",
}


def working_point(text: str) -> tuple[str, float] | None:
    """The tagger and the cut of TAGGER:FILE.json:POINT; None if the text is something else.

    The correction is that of the tagger, or the only one in the file whose name has `wp_values`.
    """
    if (found := WRITTEN.fullmatch(text)) is None:
        return None
    tagger, path, point = found.group("tagger", "file", "point")
    bare = tagger.removeprefix("Jet_").removeprefix("btag")
    try:
        corrections = {str(each["name"]): each["data"] for each in read_json(path)["corrections"]}
        known = [name for name in corrections if "wp_values" in name]
        begin = (CORRECTIONS.get(bare, bare), bare)
        names = [name for name in known if name.partition("_wp_values")[0] in begin] or known
        if len(names) != 1:
            raise ConfigError(f"{path}: no working points of {tagger}, but {', '.join(known) or 'none'}")
        points = {str(each["key"]): each["value"] for each in corrections[names[0]]["content"]}
    except (KeyError, TypeError):
        raise ConfigError(f"{path}: not a file of working points, as correctionlib writes it") from None
    if not isinstance(points.get(point), int | float):
        raise ConfigError(f"{path}: {names[0]} has no point {point!r}, but {', '.join(points) or 'none'}")
    return tagger, float(points[point])
