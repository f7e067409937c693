"""What reads bytes of strangers, by name; good files to begin with, and bytes that once broke something."""

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import uproot
from onnx import TensorProto, helper

from event_files import write_events
from pairton import formats
from pairton._common.configuration import parse_json, parse_yaml
from pairton.errors import PairtonError
from pairton.events.tags import parse_table
from pairton.formats.files import expand
from pairton.generator.card import parse_card
from pairton.generator.pythia import scan
from pairton.kinematics.fit_settings import parse_settings
from pairton.models.onnx_file import read_onnx
from pairton.models.storage import parse_info
from pairton.topology import load_topology, parse_topology

WORK = Path(tempfile.mkdtemp())
PACKAGE = Path(formats.__file__).parents[1]


def as_text(use: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda content: use(content.decode("utf-8", "replace"))


def as_file(name: str, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    def call(content: bytes) -> object:
        (WORK / name).write_bytes(content)
        return use(WORK / name)

    return call


def topology(text: str) -> object:
    found = parse_topology(parse_yaml(text, "x"))
    return found.levels, found.tree(), found.to_dict()


def recipe(text: str) -> object:
    from pairton.training import parse_recipe

    return parse_recipe(parse_yaml(text, "x"))


def tree_file(path: Path) -> object:
    return load_topology(path).to_dict()


TARGETS = {
    "onnx": as_file("x.onnx", read_onnx),
    "yaml": as_text(lambda text: parse_yaml(text, "x")),
    "json": as_text(lambda text: parse_json(text, "x")),
    "model": as_text(lambda text: parse_info(parse_json(text, "x"), "x")),
    "topology": as_text(topology),
    "tree_file": as_file("x.yaml", tree_file),
    "card": as_text(parse_card),
    "recipe": as_text(recipe),
    "tags": as_text(lambda text: parse_table(parse_yaml(text, "x"), "x")),
    "fit": as_text(lambda text: parse_settings(parse_yaml(text, "x"), "x")),
    "list": as_file("x.txt", lambda path: expand(f"@{path}")),
    "hdf5": as_file("x.h5", formats.read),
    "root": as_file("x.root", formats.read),
    "parquet": as_file("x.parquet", formats.read),
    "les_houches": as_file("x.lhe", scan),
}


def once(target: str, content: bytes) -> None:
    """An answer, or a PairtonError of one short line; everything else is a fault."""
    try:
        TARGETS[target](content)
    except PairtonError as error:
        if "\n" in str(error) or len(str(error)) > 3000:
            raise ValueError(f"not one short line: {str(error)[:300]}") from error


def small_onnx() -> bytes:
    """The shipped ones have hundreds of kB."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [weight])).SerializeToString()


def small_events(suffix: str) -> bytes:
    """Five of the sample events in another format."""
    return write_events(formats.read("sample:ttbar_allhad")[:5], WORK / f"good{suffix}").read_bytes()


def seeds(target: str) -> list[bytes]:
    """Good files to begin with."""
    if target == "onnx":
        return [small_onnx()]
    if target in ("hdf5", "root", "parquet"):
        return [small_events({"hdf5": ".h5"}.get(target, f".{target}"))]
    if target == "les_houches":
        return [b"<LesHouchesEvents version='3.0'>\n<init>\n</init>\n<event>\n</event>\n</LesHouchesEvents>\n"]
    if target == "list":
        return [b"x.txt\n# a comment\n*.h5\n"]
    patterns = dict.fromkeys(("json", "model"), "models/*/model.json")
    patterns |= {
        "recipe": "recipes/cpu.yaml",
        "card": "generator/cards/*.yaml",
        "tags": "events/tag_tables/*.yaml",
    }
    patterns |= {"fit": "kinematics/**/*.yaml"}
    return [path.read_bytes() for path in PACKAGE.glob(patterns.get(target, "topology/builtin/*.yaml"))]


def huge_root() -> bytes:
    """A tree without most columns, and with momenta that single precision does not hold."""
    path = WORK / "huge.root"
    with uproot.recreate(path) as file:
        file["Events"] = {"jet_pt": [[1e300] * 3, []]}
    return path.read_bytes()


def corpus() -> list[tuple[str, bytes]]:
    """Target and bytes: each was once a traceback, a hang, a wrong answer, or more memory than there is."""
    model = (PACKAGE / "models" / "ttbar_allhad" / "model.json").read_text()
    table = next((PACKAGE / "events" / "tag_tables").glob("*.yaml")).read_text()
    return [
        ("model", model.replace('"binary": [', '"binary": ["nonsense", ', 1).encode()),
        ("model", model.replace('"format_version": 2', '"format_version": 1e300').encode()),
        ("model", b"1"),
        ("topology", b"name: x\nevent: [event]\nparticles: {event: [q]}"),
        ("topology", b"name: x\nevent: [a]\nparticles: {a: [b, b], b: [c, c], c: [a, a]}"),
        ("topology", "\n".join(["name: x", "event: [a0]", "particles:", *_doubling(40)]).encode()),
        ("tags", table.replace("cuts:", "cuts: [1.0e+300, .nan]\nodd:", 1).encode()),
        ("card", b"name: atlas\necal: {towers: [{from: -1, to: 1.0e+300, step: 1.0e-300, phi: 1}]}"),
        ("card", b"towers: 5"),
        ("list", b"\xef\xbb\xbfa#b.h5\n"),
        ("list", b"@x.txt\nx.txt\n"),
        ("list", b"reference://a.h5::x.json\nhttp://localhost:1/x.h5\n"),
        ("list", b"a\x00b.h5\n"),
        ("list", b"~\x00\n"),
        ("list", b"~nobody-of-this-name/a.h5\n"),
        ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(100)),
        ("parquet", b"PAR1" + b"\xff" * 100 + b"PAR1"),
        ("root", b"root" + b"\xff" * 400),
        ("root", huge_root()),
        ("les_houches", gzip.compress(b"<init>" + b" " * 2**20)),
        ("les_houches", b"\x1f\x8b\x08\x00" + b"\xff" * 100),
        ("les_houches", b"<!--\n<event>\n-->\n"),
        ("onnx", b"\x08\x07:" + b"\xff" * 20),
        ("onnx", b""),
    ]


def _doubling(levels: int) -> list[str]:
    """A tree with 2 to the power of `levels` leaves, in a few lines."""
    return [f"  a{k}: [a{k + 1}, a{k + 1}]" for k in range(levels)]
