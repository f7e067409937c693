"""Kills reconstruct, convert, generate and train at random moments (kill -9), checks the disk, and resumes.

test_reliability.py runs it as a process of its own, as it forks before threads start.

Each verb first runs undisturbed, which gives its result and duration. Then it is started repeatedly and killed at
a random moment. After every kill, the old file, the complete new one, or nothing must be under the final name.
Verbs that can resume continue from where they were killed. A last run, not killed, must give the undisturbed
result. Since a random moment rarely hits a rename, verbs are also killed just before and just after renames.
Processes are forked from one that has imported everything, so that kills hit the work and not the imports.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import yaml
from safetensors.numpy import load_file

import pairton.reconstruction.assigner as running
import pairton.reconstruction.parts as partitions
import pairton.reconstruction.writers as results
from pairton import formats
from pairton.cli import main as pairton
from pairton.errors import ModelError
from pairton.events import Events
from pairton.events.objects import make_jets
from pairton.generator.production import parts_folder, produce
from pairton.generator.settings import make_settings
from pairton.models.storage import read_info
from pairton.network.engine import load_network
from pairton.reconstruction.provenance import COMPLETE
from pairton.reconstruction.running import reconstruct_files

WINDOW = 64  # rows, so that small files have many windows
OLD = b"an earlier result"
STATE = "state.safetensors"
STEPS = 40
CHUNKS = 6
RECIPE = {
    "topology": "ttbar_allhad",
    "network": {"blocks": 1, "single_width": 8, "single_heads": 2, "pair_width": 8, "pair_heads": 2},
    "data": {"train_fraction": 0.5, "validation_fraction": 0.3},
    "optimiser": {"steps": STEPS, "batch": 16, "ema": 0.5},  # short average, so that the best model changes often
    "run": {"accelerator": "cpu", "validate_every": 3, "save_every": 2, "log_every": 1},
}


@dataclass
class Verb:
    """A command, and how its output is checked."""

    name: str
    run: Callable[[Path], None]  # starts or resumes the command
    check: Callable[[Path, Any], str]  # output, undisturbed content -> old, new, ...; raises if incomplete
    content: Callable[[Path], Any]  # what must be equal in the end
    begin: bytes | None = None  # content of the output before the command
    done: Callable[[Path], float] | None = None  # share of the work that is done; None if it cannot resume
    suffix: str = ""


def events(n: int, seed: int, n_jets: int) -> Events:
    rng = np.random.default_rng(seed)
    shape = (n, n_jets)
    pt, eta = rng.uniform(30, 200, shape), rng.uniform(-2, 2, shape)
    jets = make_jets(
        pt=pt.tolist(),
        eta=eta.tolist(),
        phi=rng.uniform(-3, 3, shape).tolist(),
        mass=rng.uniform(5, 20, shape).tolist(),
        btag=rng.permuted(np.tile(np.arange(n_jets) < 2, (n, 1)), axis=1).tolist(),
    )
    return Events(jets, truth=np.argsort(rng.random(shape), axis=1)[:, :6])


def old_or_new(path: Path, content: Any) -> str:
    found = path.read_bytes() if path.exists() else None
    if found is None:
        return "nothing"
    if found == OLD:
        return "old"
    assert found == content, f"{path} is neither the old nor the new file"
    return "new"


def arrays(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update({name: item[()].tobytes()}) if isinstance(item, h5py.Dataset) else None
        )
    return found


def check_parts(path: Path, content: Any) -> str:
    for part in path.glob("part-*"):
        assert pq.read_table(part).equals(content[part.name]), f"{part} is not complete"
    return "new" if (path / COMPLETE).exists() else "nothing"


def check_sample(path: Path, content: Any) -> str:
    if path.exists():
        assert arrays(path) == content, f"{path} is not complete"
    return "new" if path.exists() else "nothing"


def check_run(path: Path, content: Any) -> str:
    """State and model must be readable at any moment; files that do not belong together must be refused."""
    if (path / "model.json").exists():
        read_info(path)
        try:
            load_network(path)
        except ModelError as error:  # killed between the renames of the two
            if not any(text in str(error) for text in ("not the weights that", "cannot be read (No such file")):
                raise
            load_if_there(path / "model.safetensors")
    return "new" if step_of(path) == STEPS else "state" if (path / STATE).exists() else "nothing"


def load_if_there(path: Path) -> None:
    if path.exists():
        load_file(path)


def step_of(path: Path) -> int:
    from pairton.training.resume_state import read_progress

    load_if_there(path / STATE)
    return int(read_progress(path / STATE)["step"]) if (path / STATE).exists() else 0


def tensors(path: Path) -> dict[str, Any]:
    files = [load_file(path / name) for name in (STATE, "model.safetensors")]
    return {f"{k}.{name}": value.tobytes() for k, file in enumerate(files) for name, value in file.items()}


def verbs(folder: Path, model: str) -> list[Verb]:
    source, few, recipe = folder / "events.h5", folder / "six_jets.h5", folder / "recipe.yaml"
    # with six jets, even a tiny network is sometimes right, and improves during the training
    for path, made in ((source, events(640, 1, 7)), (few, events(640, 2, 6))):
        with formats.create(path, made.topology) as writer:
            writer.write(made)
    recipe.write_text(yaml.safe_dump(RECIPE))

    def reconstruct(out: Path) -> None:
        pairton(["reconstruct", str(source), "-o", str(out), "--model", model, "--threads", "1", "--force"])

    def parts(out: Path) -> None:
        reconstruct_files(source, out, model, resume=True, rows=WINDOW)

    def convert(out: Path) -> None:
        pairton(["convert", str(source), str(out), "--force"])

    def generate(out: Path) -> None:
        if not out.exists():
            settings = make_settings("ttbar_allhad", 5 * CHUNKS, seed=3, keep="all").with_sizes(5, 5)
            produce(settings, out, resume=parts_folder(out).exists())

    def training(out: Path) -> None:
        more = ["--resume"] if (out / STATE).exists() else []
        pairton(["train", str(recipe), "--data", str(few), "--out", str(out), "--threads", "1", *more])

    def table(out: Path) -> Any:
        return {part.name: pq.read_table(part) for part in out.glob("part-*")}

    def finished(out: Path) -> float:
        return len(list(out.glob("part-*"))) * WINDOW / 640

    def simulated(out: Path) -> float:
        return 1.0 if out.exists() else len(list(parts_folder(out).glob("chunk-*"))) / CHUNKS

    return [
        Verb("reconstruct", reconstruct, old_or_new, Path.read_bytes, OLD, suffix=".parquet"),
        Verb("reconstruct in parts", parts, check_parts, table, done=finished),
        Verb("convert", convert, old_or_new, Path.read_bytes, OLD, suffix=".parquet"),
        Verb("generate", generate, check_sample, arrays, done=simulated, suffix=".h5"),
        Verb("train", training, check_run, tensors, done=lambda out: step_of(out) / STEPS),
    ]


def import_for_training() -> None:
    """Import what `train` needs, before the forks."""
    for name in ("lightning.fabric", "torch.utils.tensorboard", "pairton.training"):
        importlib.import_module(name)


def start(verb: Verb, out: Path, prepare: Callable[[], None] | None = None) -> int:
    process = os.fork()
    if process:
        return process
    code = 0
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        errors = os.open(out.parent / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        if prepare is not None:
            prepare()
        verb.run(out)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        os.write(2, repr(error).encode())
        code = 1
    finally:
        os._exit(code)


def finish(verb: Verb, out: Path, prepare: Callable[[], None] | None = None) -> float:
    begun = time.monotonic()
    _, status = os.waitpid(start(verb, out, prepare), 0)
    errors = out.parent / "errors.txt"
    said = errors.read_text()[-500:] if errors.exists() else ""
    assert status == 0, f"{verb.name} ended with {os.waitstatus_to_exitcode(status)}: {said}"
    return time.monotonic() - begun


def equal(verb: Verb, out: Path, content: Any) -> None:
    assert verb.content(out) == content, f"{verb.name}: the result differs from that of an undisturbed run"


def kill_after(process: int, seconds: float) -> tuple[int, float]:
    """Kill a process after some seconds, if it has not ended. Return its status, and how long it lived."""
    begun = time.monotonic()
    while (lived := time.monotonic() - begun) < seconds:
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    return os.waitpid(process, 0)[1], lived


def at_random(verb: Verb, home: Path, content: Any, took: float, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill a verb at random moments. Return what was on disk afterwards, and how much work was done."""
    found: Counter[str] = Counter()
    far: list[float] = []
    compared = 0
    out = home / f"out{verb.suffix}"
    while found.total() < kills:
        if verb.begin is not None:
            out.write_bytes(verb.begin)
        fresh = verb.done is None or not verb.done(out)
        status, lived = kill_after(start(verb, out), rng.uniform(0.02, 1) * took)
        state = verb.check(out, content)
        if os.WIFSIGNALED(status):
            found[state] += 1
            if verb.done is not None:
                far.append(round(verb.done(out), 3))
            continue
        assert status == 0, (home / "errors.txt").read_text()[-500:]
        if fresh:
            took = min(took, lived)  # the machine has become faster: kill earlier
        if verb.done is not None:  # it has resumed earlier runs and finished
            equal(verb, out, content)
            compared += 1
            out = home / f"out{compared}{verb.suffix}"
    finish(verb, out)
    equal(verb, out, content)
    return {"kills": kills, "found": dict(found), "done": far, "compared": compared + 1}


def at_each_rename(act: Callable[[Callable[[], None]], None]) -> None:
    """Call `act` instead of every rename, with a function that renames."""
    vars(os)["replace"] = partial(lambda rename, *names: act(lambda: rename(*names)), os.replace)


def die_at_rename(number: int, after: bool) -> None:
    calls = itertools.count()

    def deadly(rename: Callable[[], None]) -> None:
        last = next(calls) == number
        if not last or after:
            rename()
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    at_each_rename(deadly)


def at_renames(verb: Verb, home: Path, content: Any, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill a verb just before and just after renames: at all of them, or at `kills` of them."""
    count = home / "renames.txt"

    def counted(rename: Callable[[], None]) -> None:
        rename()
        with count.open("a") as file:
            file.write("x")

    finish(verb, home / f"counted{verb.suffix}", lambda: at_each_rename(counted))
    moments = [(k, after) for k in range(len(count.read_text())) for after in (False, True)]
    chosen = sorted(rng.sample(moments, min(kills, len(moments))))
    found: Counter[str] = Counter()
    for k, after in chosen:
        out = home / f"renamed-{k}-{after}{verb.suffix}"
        if verb.begin is not None:
            out.write_bytes(verb.begin)
        _, status = os.waitpid(start(verb, out, partial(die_at_rename, k, after)), 0)
        assert os.WIFSIGNALED(status), (home / "errors.txt").read_text()[-500:]
        found[verb.check(out, content)] += 1
        finish(verb, out)
        equal(verb, out, content)
    return {"renames": len(moments) // 2, "kills": len(chosen), "found": dict(found), "compared": len(chosen)}


def trial(verb: Verb, folder: Path, kills: int, renames: int, rng: random.Random) -> dict[str, Any]:
    home = folder / verb.name.replace(" ", "_")
    home.mkdir()
    calm = home / f"calm{verb.suffix}"
    took = finish(verb, calm)
    took = min(took, finish(verb, home / f"again{verb.suffix}"))  # the first may include warm-up
    content = verb.content(calm)
    row: dict[str, Any] = {"verb": verb.name, "seconds": round(took, 2)}
    row["moments"] = at_random(verb, home, content, took, kills, rng)
    row["renames"] = at_renames(verb, home, content, renames, rng) if renames else {}
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, help="kills of each verb at random moments")
    parser.add_argument("--renames", type=int, help="largest number of kills of each verb at renames")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--model")
    parser.add_argument("--verbs", default="", help="only these, separated by commas")
    arguments = parser.parse_args()
    vars(partitions)["WINDOW"] = WINDOW
    running.windows.__defaults__ = (WINDOW,)
    results.ROWS = WINDOW
    wanted = arguments.verbs.split(",") if arguments.verbs else None
    if wanted is None or "train" in wanted:
        import_for_training()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for verb in verbs(Path(folder), arguments.model):
            if wanted is None or verb.name in wanted:
                rng = random.Random(f"{arguments.seed} {verb.name}")  # independent of the other verbs
                rows.append(trial(verb, Path(folder), arguments.kills, arguments.renames, rng))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
