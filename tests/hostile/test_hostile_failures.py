"""Every verb that writes: a failure at the n-th rename, link, sync or byte, and a second run at the same time."""

import errno
import os
import resource
import shutil
from dataclasses import dataclass
from functools import partial

import awkward as ak
import numpy as np
import pytest
import yaml

from event_files import write_events
from pairton.cli import main
from pairton.generator import production
from random_objects import RECIPE

OLD = b"an earlier result"
MOST = 3  # failures of one sort in one verb


@dataclass(frozen=True)
class Verb:
    """A command; capitals are the inputs of `place`, and OUT is the output."""

    words: str
    out: str
    has_force: bool = True
    resumes: bool = False  # its output, or that of its chunks, is a folder that only one run may use

    def command(self, *more):
        return [*self.words.replace("OUT", self.out).split(), *more]


RESULTS = ("parquet", "root", "h5")
VERBS = {
    **{f"reconstruct {s}": Verb("reconstruct DATA.h5 -o OUT --model MODEL", f"out.{s}") for s in RESULTS},
    "reconstruct in parts": Verb("reconstruct DATA.h5 -o OUT --model MODEL --jobs 1", "out", resumes=True),
    **{f"convert {s}": Verb("convert DATA.h5 OUT", f"out.{s}") for s in RESULTS},
    "generate": Verb("generate -n 6 -o OUT --keep all", "out.h5", resumes=True),
    "measure tags": Verb("measure tags DATA.h5 --score btag --cuts 0.5 -o OUT", "out.yaml"),
    "measure transfer": Verb("measure transfer DATA.h5 -o OUT", "out.yaml"),
    "export": Verb("export MODEL -o OUT", "out.onnx"),
    "train": Verb("train RECIPE.yaml --data DATA.h5 --out OUT --threads 1", "out", resumes=True),
    "evaluate --json": Verb("evaluate DATA.h5 --model MODEL --json OUT", "out.json", has_force=False),
    "evaluate --report": Verb("evaluate DATA.h5 --model MODEL --report OUT", "out.html", has_force=False),
    "evaluate --plots": Verb("evaluate DATA.h5 --baseline random --plots OUT", "out", has_force=False),
    "display html": Verb("display DATA.h5 --model MODEL -o OUT", "out.html", has_force=False),
    "display png": Verb("display DATA.h5 --model MODEL -o OUT", "out.png", has_force=False),
}
SLOW = ("train", "display png", "evaluate --report", "evaluate --plots")
every_verb = pytest.mark.parametrize(
    ("name", "force"),
    [
        pytest.param(name, force, id=name + " --force" * force, marks=[pytest.mark.long] * (name in SLOW))
        for name, verb in VERBS.items()
        for force in ([False, True] if verb.has_force else [False])
    ],
)


@pytest.fixture(scope="module")
def place(tmp_path_factory, decays, model_folder):
    """A folder with all inputs."""
    place = tmp_path_factory.mktemp("place")
    for name, seed in (("DATA", 1), ("OTHER", 2)):
        events = decays(300, seed=seed)
        jets = ak.with_field(events.jets, ak.where(events.jets.btag, 5, 0), "flavour")
        events = events.replace(jets=ak.with_field(jets, 1.1 * jets.energy, "true_energy"))
        write_events(events, place / f"{name}.h5")
    shutil.copytree(model_folder, place / "MODEL")
    (place / "RECIPE.yaml").write_text(yaml.safe_dump(RECIPE | {"optimiser": {"steps": 2, "batch": 16}}))
    return place


@pytest.fixture
def run(place, decays, monkeypatch, capsys):
    """Runs a command in `place`, with events that need no Pythia; gives its code and its errors."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("sys.argv", ["pairton"])
    ids = np.arange(12, dtype=np.uint64).reshape(6, 2)
    made = partial(decays, 6, ids=ids)
    counts = production.Counts(*[6] * 7)
    monkeypatch.setattr(production, "run_chunk", lambda settings, *_: (made(seed=settings.seed), counts))

    def call(words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(words)
        lines = capsys.readouterr().err.splitlines()
        return ended.value.code, [line for line in lines if not line.startswith(("pairton: warning: ", "step "))]

    return call


@pytest.fixture
def tidy(place):
    """Removes all outputs."""

    def call():
        for path in place.glob("*out*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    call()
    yield call
    call()


def content(path):
    """The bytes of a file, the names in a folder, the size of a ROOT file (which has a time and a random id)."""
    if path.is_dir():
        return sorted(entry.name for entry in path.iterdir())
    return None if not path.exists() else path.stat().st_size if path.suffix == ".root" else path.read_bytes()


def hidden(place):
    return [path.name for path in place.rglob(".*")]


class Calls:
    """Counts the calls of a function of `os`, and lets the n-th one fail."""

    def __init__(self, monkeypatch, name, n=None):
        self.count, self.n, self.call = 0, n, getattr(os, name)
        monkeypatch.setattr(os, name, self)

    def __call__(self, *arguments, **keywords):
        self.count += 1
        if self.count - 1 == self.n:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self.call(*arguments, **keywords)


def some(count):
    return sorted({round(k) for k in np.linspace(0, count - 1, min(count, MOST))})


@every_verb
def test_a_failure_at_any_moment(run, place, tidy, name, force):
    verb = VERBS[name]
    out, more = place / verb.out, ["--force"] * force
    old = OLD if out.suffix and (force or not verb.has_force) else None

    def begin():
        tidy()
        if old is not None:
            out.write_bytes(old)
        elif force:
            code, said = run(verb.command())
            assert code == 0, said

    begin()
    before = content(out)
    with pytest.MonkeyPatch.context() as patch:
        calls = {function: Calls(patch, function) for function in ("replace", "fsync")}
        code, said = run(verb.command(*more))
        assert code == 0, said
    new = content(out)
    failures = [(function, n) for function, seen in calls.items() for n in some(seen.count)]
    assert failures
    failures += [("size", n) for n in (0, max(path.stat().st_size for path in (out, *out.rglob("*"))) // 2)]
    for function, n in failures:
        begin()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        with pytest.MonkeyPatch.context() as patch:
            if function == "size":
                resource.setrlimit(resource.RLIMIT_FSIZE, (n, limits[1]))  # Python ignores SIGXFSZ
            else:
                Calls(patch, function, n)
            try:
                code, said = run(verb.command(*more))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        case = f"{function} {n}: {code} {said}"
        if code == 0:  # a folder that cannot be synced
            assert function == "fsync", case
            assert content(out) == new, case
        else:
            assert (code, len(said)) == (2, 1), case
            assert "cannot be written" in said[0], case
            if out.is_file() or not out.exists():
                assert content(out) in (before, None if verb.resumes else before), case
        assert hidden(place) == [], case
        if verb.resumes and code:
            left = out.exists() or production.parts_folder(out).exists()
            assert run(verb.command(*["--force"] * left))[0] == 0, case
            assert content(out) == new, case


@every_verb
def test_two_runs_at_once(run, place, tidy, name, force):
    """The second one runs from its start to its end while the first one writes its first file."""
    verb, more, second = VERBS[name], ["--force"] * force, []
    out = place / verb.out
    other = [word.replace("DATA", "OTHER") for word in verb.command(*more)]
    other += ["--seed", "2"] * (name == "generate")
    code, said = run(verb.command())
    assert code == 0, said
    alone = content(out)
    tidy()
    with pytest.MonkeyPatch.context() as patch:

        def sync(descriptor):
            patch.undo()
            second.append(run(other))

        patch.setattr(os, "fsync", sync)
        code, said = run(verb.command(*more))
    ((its_code, it_said),) = second
    names = {path.name for path in place.glob("*out*")}
    if verb.resumes:
        assert (its_code, code, len(it_said)) == (2, 0, 1), (it_said, said)
        assert "another run is writing there" in it_said[0]
        assert content(out) == alone
    else:
        assert (its_code, code) == (0, 0), (it_said, said)
        assert content(out) == alone
    assert names == {verb.out}
    assert hidden(place) == []
