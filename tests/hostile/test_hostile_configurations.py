"""YAML, JSON and lists of files that are meant to hurt: within seconds, an answer or one line."""

import os
import subprocess
import sys

import pytest

from pairton._common.configuration import parse_json, parse_yaml, read_json, read_yaml
from pairton.errors import ConfigError, TopologyError
from pairton.topology import parse_topology

PAIRTON = [sys.executable, "-c", "from pairton.cli import main; main()"]
LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}, *a{k - 1}]\n" for k in range(1, 60))
ODD = {
    "aliases that unfold": LAUGHS,
    "aliases that unfold, as a topology": "name: x\nevent: *a9\nparticles: *a9\n".replace("name", LAUGHS + "name"),
    "a merge that unfolds": "a: &a {x: 1}\n"
    + "".join(f"b{k}: &b{k} {{<<: [*a, *a]}}\n" for k in range(3))
    + LAUGHS,
    "an alias of itself": "&a [*a]",
    "deep": "[" * 100_000,
    "deep mappings": "{a: " * 10_000,
    "a long number": f"name: {'9' * 400}",
    "a longer number": f"name: {'9' * 5000}",
    "a date that cannot be": "name: 2024-99-99",
    "a time": "name: 2024-01-01T00:00:00+99:00",
    "binary": "name: !!binary '*'",
    "a set": "name: !!set {a, b}",
    "an unhashable key": "{[a]: 1}",
    "a key of null": "null: 1",
    "nothing": "",
    "a byte of zero": "a: \0",
    "two documents": "a: 1\n---\nb: 2",
    "a key twice": "name: x\nevent: [t]\nparticles: {t: [q, q]}\nname: y",
    "a long word": "x" * 200_000,
    "too large": "#" + "x" * 300_000,
    "sixty": "a: 1:2:3:4e5",
    "not a number": "name: .nan\nevent: [.inf]",
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_odd_yaml_is_one_short_line_for_every_verb(tmp_path, refused, source, text):
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    said = [refused("list", "topologies", path), refused("train", path, "--data", source)]
    said.append(refused("generate", "-n", "1", "-o", tmp_path / "out.h5", "--card", path))
    assert max(map(len, said)) < 2000


def test_dates_are_words_and_ordinary_aliases_are_followed():
    assert parse_yaml("a: &x [1, 2]\nb: *x\nc: 2024-01-01", "x") == {"a": [1, 2], "b": [1, 2], "c": "2024-01-01"}
    assert parse_yaml("base: &b {x: 1}\nmore: {<<: *b, y: 2}", "x")["more"] == {"x": 1, "y": 2}
    assert parse_yaml("base: &b {x: 1}\nmore: {<<: *b, x: 2}", "x")["more"] == {"x": 2}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"a": [{"b": 1, "b": 1}]}',
        "9" * 400,
        "9" * 5000,
        "",
        "[1, 2",
        b"\xff\xfe\xff",
        "\ud800",
    ],
)
def test_odd_json_is_one_line(text):
    with pytest.raises(ConfigError, match="x: not readable as JSON") as caught:
        parse_json(text, "x")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("reader", [read_yaml, read_json])
def test_pipes_and_devices_are_no_configurations(tmp_path, reader):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero", tmp_path / "none"):
        with pytest.raises(ConfigError, match=r"not a regular file|cannot be read"):
            reader(path)


def test_doubling_decays_are_refused():
    decays = {f"p{k}": [f"p{k + 1}", f"p{k + 1}"] for k in range(20)} | {"p20": ["q", "q"]}
    with pytest.raises(TopologyError, match="at most 24 slots"):
        parse_topology({"name": "x", "event": ["p0"], "particles": decays})
    chain = {f"p{k}": [f"p{k + 1}"] for k in range(2000)} | {"p2000": ["q", "q"]}
    with pytest.raises(TopologyError, match="levels of decays, but a tree may have at most 24"):
        parse_topology({"name": "x", "event": ["p0"], "particles": chain})
    single = {"a": ["b"], "b": ["q", "q"]}
    assert len(parse_topology({"name": "x", "event": ["a"], "particles": single}).slots) == 2


def test_a_list_that_names_itself_is_one_line(tmp_path, refused, source):
    (tmp_path / "a.txt").write_text("@b.txt\n")
    (tmp_path / "b.txt").write_text(f"{source}\n@a.txt\n")
    assert "given twice, perhaps by itself" in refused("inspect", f"@{tmp_path / 'a.txt'}")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refused("inspect", f"@{tmp_path / 'pipe'}")
    assert "not a regular file" in refused("inspect", tmp_path / "pipe")
    assert "not a regular file" in refused("inspect", "/dev/zero")


def test_names_do_not_control_the_terminal(tmp_path, refused, source):
    name = "red \x1b[31m[bold]\nname"
    said = refused("inspect", tmp_path / f"{name}.h5")
    assert "\\x1b[31m" in said
    assert "\x1b" not in said
    odd = {"name": name, "event": ["t"], "particles": {"t": ["q", "q"]}}
    with pytest.raises(TopologyError, match="must be a word"):
        parse_topology(odd)
    (tmp_path / "[bold]{x}.h5").write_bytes(source.read_bytes())
    subprocess.run([*PAIRTON, "inspect", "[bold]{x}.h5"], cwd=tmp_path, check=True, capture_output=True)


def test_a_name_that_is_not_utf_8_is_shown_and_stored(tmp_path, command, source):
    """On a page it was a traceback."""
    pytest.importorskip("matplotlib")
    odd = tmp_path / os.fsdecode(b"odd\xff.h5")
    source.rename(odd)
    assert command("evaluate", odd, "--baseline", "random", "--report", tmp_path / "page.html") == 0
    assert "odd" in (tmp_path / "page.html").read_text("utf-8")
    assert command("reconstruct", odd, "-o", tmp_path / "out.parquet") == 0
    assert command("inspect", tmp_path / "out.parquet", "--verify") == 0


@pytest.mark.parametrize(
    "words",
    [
        "list topologies",
        "list models",
        "inspect",
        "inspect --verify",
        "inspect IN --topology",
        "reconstruct IN --model",
    ],
)
def test_an_overlong_name_is_one_line(source, refused, words):
    refused(*[str(source) if word == "IN" else word for word in words.split()], "9" * 400)


def test_a_full_device_is_one_line(source):
    for verb in (["inspect", str(source)], ["list", "topologies"], ["inspect", str(source), "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([*PAIRTON, *verb], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_shares_that_are_no_numbers_are_refused(refused, source):
    for mix in ("nan", "1,nan,2", "inf,1,1", "1e400,1,1", "-1,2,3"):
        assert "give a share for each" in refused("evaluate", source, "--mix", mix)
