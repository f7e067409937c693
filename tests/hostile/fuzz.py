"""A fuzzer guided by coverage, as an option: `pip install atheris`, then `python fuzz.py TARGET [SECONDS]`.

TARGET is onnx, yaml, json, topology, card, recipe or hdf5. Each input gives an answer or a PairtonError of one
line; anything else is a fault, and atheris leaves the bytes that cause it in the current folder.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris
from onnx import TensorProto, helper

with atheris.instrument_imports(include=["pairton", "yaml"]):
    from pairton import formats
    from pairton._common.configuration import parse_json, parse_yaml
    from pairton.errors import PairtonError
    from pairton.generator.card import parse_card
    from pairton.models.onnx_file import operators, read_onnx
    from pairton.topology import parse_topology

WORK = Path(tempfile.mkdtemp())


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


TARGETS = {
    "onnx": as_file("x.onnx", lambda path: operators(read_onnx(path))),
    "yaml": as_text(lambda text: parse_yaml(text, "x")),
    "json": as_text(lambda text: parse_json(text, "x")),
    "topology": as_text(topology),
    "card": as_text(parse_card),
    "recipe": as_text(recipe),
    "hdf5": as_file("x.h5", formats.read),
}


def seeds(target: str) -> list[bytes]:
    """Good files to begin with."""
    if target == "onnx":  # a small one: the shipped ones have hundreds of kB
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
        weight = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "w"], ["y"])], "g", values[:1], values[1:], [weight]
        )
        return [helper.make_model(graph).SerializeToString()]
    package = Path(formats.__file__).parents[1]
    patterns = {"json": "models/*/model.json", "hdf5": "samples/*.h5"}
    patterns |= {"recipe": "recipes/*.yaml", "card": "generator/cards/*.yaml"}
    return [path.read_bytes() for path in package.glob(patterns.get(target, "topology/builtin/*.yaml"))]


def main() -> None:
    target, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "60"
    use = TARGETS[target]
    corpus = WORK / "corpus"
    corpus.mkdir()
    for k, content in enumerate(seeds(target)):
        (corpus / str(k)).write_bytes(content)

    def once(content: bytes) -> None:
        try:
            use(content)
        except PairtonError as error:
            if "\n" in str(error) or len(str(error)) > 3000:
                raise ValueError(f"not one short line: {str(error)[:300]}") from error

    atheris.Setup(
        [sys.argv[0], f"-max_total_time={seconds}", "-max_len=1000000", "-rss_limit_mb=4096", str(corpus)], once
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
