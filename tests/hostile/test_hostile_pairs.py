"""Two runs in one folder that differ in one setting, in turn or at once: refused, or all parts of one run."""

import hashlib
import threading
from dataclasses import replace

import numpy as np
import pytest

from event_files import write_events
from pairton.errors import OutputError
from pairton.events import Events
from pairton.events.domain import Domain, KindDomain
from pairton.reconstruction import parts as partitions
from pairton.reconstruction.provenance import COMPLETE, verify
from pairton.reconstruction.running import reconstruct_files

SIZE = 16  # rows of a window
# what may differ: the inputs, the model, how it is run, how files are read, how parts are cut
CHANGES = ("events", "domain", "name", "temperature", "max_objects", "decoding", "cuts")
CHANGES += ("keep", "btag", "units", "rows", "suffix", "chunk")


class Stop(Exception):
    """An interrupted run."""


@pytest.fixture
def start(decays, tmp_path, mass_model_type, monkeypatch):
    """Runs with some changes into a folder, perhaps interrupted after some parts."""
    monkeypatch.setattr(partitions, "WINDOW", SIZE)
    monkeypatch.setattr("pairton.reconstruction.assigner.windows.__defaults__", (SIZE,))
    for seed in (0, 1):
        made = decays(4 * SIZE, seed=seed, extra=2)
        events = Events(made.jets, columns={"run": np.arange(len(made))})
        write_events(events, tmp_path / f"{seed}.h5")

    def run(folder, changes, after=None, **how):
        model = mass_model_type()
        if "domain" in changes:
            model = replace(model, domain=Domain({"jet": KindDomain(count=(6, 7), binary=("btag",))}))
        if "name" in changes:
            model = replace(model, name="others")
        if "temperature" in changes:
            model = replace(model, temperatures=(2.0,))
        how |= {"decoding": "one_shot" if "decoding" in changes and "temperature" not in changes else None}
        how |= {"max_objects": 7 if "max_objects" in changes else 12, "cuts": "cuts" not in changes}
        how |= {"rows": 2 * SIZE if "rows" in changes else SIZE, "chunk": 10 if "chunk" in changes else 1000}
        out = folder / "*.h5" if "suffix" in changes else folder
        how |= {"keep": ["run"]} if "keep" in changes else {}
        how |= {"btag": "0.7"} if "btag" in changes else {}
        how |= {"units": "MeV"} if "units" in changes else {}

        def watch(stream):
            for count, done in enumerate(stream):
                if count == after:
                    raise Stop
                yield done

        source = tmp_path / f"{int('events' in changes)}.h5"
        return reconstruct_files(source, out, model, progress=watch, jobs=1, **how)

    return run


def content(folder):
    """Name and hash of every part."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("part-*")}


def draw(rng):
    """Two sets of changes that differ in one."""
    some = {str(name) for name in rng.choice(CHANGES, rng.integers(3), replace=False)}
    return some, some ^ {str(rng.choice(CHANGES))}


def resumed(start, folder, one, other, rng):
    """The first run is interrupted after none to all of its parts; the other goes on in its folder."""
    with pytest.raises(Stop):
        start(folder, one, after=rng.integers(3) if "rows" not in one else rng.integers(2))
    before = content(folder)
    try:
        start(folder, other, resume=True)
    except OutputError:
        assert content(folder) == before
        return None
    return [other]


def at_once(start, folder, one, other, rng):
    """Both begin at the same time; those that ended well, in no order."""
    begin, well, wrong = threading.Barrier(2), [], []
    resume = bool(rng.integers(2))

    def go(changes):
        begin.wait()
        try:
            start(folder, changes, resume=resume)
            well.append(changes)
        except OutputError:
            pass
        except Exception as error:  # a thread would keep it for itself
            wrong.append(error)

    threads = [threading.Thread(target=go, args=(changes,)) for changes in (one, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert well
    return well


def check_pairs(start, tmp_path, count, seed):
    """Of the folders that are complete, each has the very parts that one of the runs makes alone."""
    rng = np.random.default_rng(seed)
    alone, refused = {}, 0
    for k in range(count):
        one, other = draw(rng)
        folder = tmp_path / f"pair-{k}"
        ended = (resumed if k % 2 else at_once)(start, folder, one, other, rng)
        if ended is None:
            refused += 1
            assert not (folder / COMPLETE).exists()
            continue
        for changes in ended:
            key = frozenset(changes)
            if key not in alone:
                start(tmp_path / f"alone-{len(alone)}", changes)
                alone[key] = content(tmp_path / f"alone-{len(alone)}")
        assert content(folder) in [alone[frozenset(changes)] for changes in ended], (k, one, other)
        assert not verify(folder)[1]
    return refused


def test_some_pairs_of_runs_are_refused_or_uniform(start, tmp_path):
    check_pairs(start, tmp_path, 6, seed=0)


@pytest.mark.long
def test_a_hundred_pairs_of_runs_are_refused_or_uniform(start, tmp_path):
    refused = check_pairs(start, tmp_path, 100, seed=1)
    assert 0 < refused < 50
