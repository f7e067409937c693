"""kill -9 at random moments of reconstruct, convert, generate and train, then what is on disk, then resume.

    python benchmarks/kills.py [--kills 20] [--seed 1] [--json]

Each verb first runs undisturbed, for its result and how long it takes. Then it is started again and again and
killed at a random moment of that time. After every kill there must be the old file, the complete new one, or
nothing under the final name; what resumes goes on from where it was killed. A last run, not killed, must give what
the undisturbed one gave. Processes are forked from one that has imported everything, so kills fall into the work,
not into the imports.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import lightning.fabric  # noqa: F401  # imported before the forks, as all that a verb imports when it runs
import numpy as np
import pyarrow.parquet as pq
import yaml
from safetensors.numpy import load_file
from torch.utils.tensorboard import SummaryWriter  # noqa: F401

import pairton.partitions as partitions
import pairton.reconstruction as reconstruction
import pairton.results as results
from pairton import formats
from pairton.checkpoints import read_info
from pairton.cli import main as pairton
from pairton.events import Events, make_jets
from pairton.generator.production import parts_folder, produce
from pairton.generator.settings import make_settings
from pairton.training import train  # noqa: F401

WINDOW = 64  # rows, so that small files have many windows
OLD = b"an earlier result"
STATE = "state.safetensors"
RECIPE = {
    "topology": "ttbar_allhad",
    "network": {"blocks": 1, "single_width": 8, "single_heads": 2, "pair_width": 8, "pair_heads": 2},
    "data": {"train_fraction": 0.5, "validation_fraction": 0.3},
    "optimiser": {"steps": 60, "batch": 16},
    "run": {"accelerator": "cpu", "validate_every": 3, "save_every": 2, "log_every": 1},
}


@dataclass
class Verb:
    """A command, what may be on disk at any moment, and what is equal in the end."""

    name: str
    run: Callable[[Path], None]  # to completion, or on from where it was
    check: Callable[[Path, Any], str]  # output, content of the undisturbed run -> what is there; raises if half
    content: Callable[[Path], Any]
    begin: bytes | None = None  # what is under the final name before


def events(n: int, seed: int) -> Events:
    rng = np.random.default_rng(seed)
    shape = (n, 7)
    pt, eta = rng.uniform(30, 200, shape), rng.uniform(-2, 2, shape)
    jets = make_jets(
        pt=pt.tolist(),
        eta=eta.tolist(),
        phi=rng.uniform(-3, 3, shape).tolist(),
        mass=rng.uniform(5, 20, shape).tolist(),
        btag=rng.permuted(np.tile(np.arange(7) < 2, (n, 1)), axis=1).tolist(),
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
    return "new" if (path / partitions.COMPLETE).exists() else "nothing"


def check_sample(path: Path, content: Any) -> str:
    if path.exists():
        assert arrays(path) == content, f"{path} is not complete"
    return "new" if path.exists() else "nothing"


def check_run(path: Path, content: Any) -> str:
    """The state and, by itself, each file of the model can be read at any moment."""
    if not (path / STATE).exists():
        return "nothing"
    load_file(path / STATE)
    if (path / "model.json").exists():
        read_info(path)
    if (path / "model.safetensors").exists():
        load_file(path / "model.safetensors")
    return "state"


def tensors(path: Path) -> dict[str, Any]:
    files = [load_file(path / name) for name in (STATE, "model.safetensors")]
    return {f"{k}.{name}": value.tobytes() for k, file in enumerate(files) for name, value in file.items()}


def verbs(folder: Path, model: str) -> list[Verb]:
    source, recipe = folder / "events.h5", folder / "recipe.yaml"
    made = events(640, 1)
    with formats.create(source, made.topology) as writer:
        writer.write(made)
    recipe.write_text(yaml.safe_dump(RECIPE))

    def reconstruct(out: Path) -> None:
        pairton(["reconstruct", str(source), "-o", str(out), "--model", model, "--threads", "1"])

    def parts(out: Path) -> None:
        arguments = ["--model", model, "--threads", "1", "--resume", "--part-rows", str(WINDOW)]
        pairton(["reconstruct", str(source), "-o", str(out), *arguments])

    def convert(out: Path) -> None:
        pairton(["convert", str(source), str(out)])

    def generate(out: Path) -> None:
        if not out.exists():
            settings = make_settings("ttbar_allhad", 30, seed=3, keep="all").with_sizes(5, 5)
            produce(settings, out, resume=parts_folder(out).exists())

    def training(out: Path) -> None:
        more = ["--resume"] if (out / STATE).exists() else []
        pairton(["train", str(recipe), "--data", str(source), "--out", str(out), "--threads", "1", *more])

    def table(out: Path) -> Any:
        return {part.name: pq.read_table(part) for part in out.glob("part-*")}

    return [
        Verb("reconstruct", reconstruct, old_or_new, Path.read_bytes, OLD),
        Verb("reconstruct in parts", parts, check_parts, table),
        Verb("convert", convert, old_or_new, Path.read_bytes, OLD),
        Verb("generate", generate, check_sample, arrays),
        Verb("train", training, check_run, tensors),
    ]


SUFFIX = {"reconstruct": ".parquet", "convert": ".parquet", "generate": ".h5"}


def start(verb: Verb, out: Path) -> int:
    process = os.fork()
    if process:
        return process
    code = 0
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        errors = os.open(out.parent / "errors.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(errors, 2)
        verb.run(out)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException as error:
        os.write(2, repr(error).encode())
        code = 1
    finally:
        os._exit(code)


def finish(verb: Verb, out: Path) -> float:
    begun = time.monotonic()
    _, status = os.waitpid(start(verb, out), 0)
    errors = out.parent / "errors.txt"
    said = errors.read_text()[-500:] if errors.exists() else ""
    assert status == 0, f"{verb.name} ended with {os.waitstatus_to_exitcode(status)}: {said}"
    return time.monotonic() - begun


def trial(verb: Verb, folder: Path, kills: int, rng: random.Random) -> dict[str, Any]:
    """Kill one verb at random moments; counts of what was there afterwards."""
    suffix = SUFFIX.get(verb.name, "")
    home = folder / verb.name.replace(" ", "_")
    home.mkdir()
    calm = home / f"calm{suffix}"
    took = finish(verb, calm)
    took = min(took, finish(verb, home / f"again{suffix}"))  # the first may have waited for the disk
    content = verb.content(calm)
    found: dict[str, int] = {}
    resumed = ended = 0
    out = home / f"out{suffix}"
    done = 0
    while done < kills:
        if verb.begin is not None:
            out.write_bytes(verb.begin)
        process = start(verb, out)
        time.sleep(rng.uniform(0.02, 1) * took)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        killed = os.WIFSIGNALED(status)
        state = verb.check(out, content)
        done += killed
        if killed:
            found[state] = found.get(state, 0) + 1
        else:
            ended += 1
            assert status == 0, (home / "errors.txt").read_text()[-500:]
        resumed += verb.begin is None and state != "new"
        if not killed and verb.begin is None:  # it had resumed to its end: that counts as a comparison
            assert verb.content(out) == content, f"{verb.name}: the resumed run differs"
            out = home / f"out{ended}{suffix}"
    finish(verb, out)
    assert verb.content(out) == content, f"{verb.name}: the last run differs from an undisturbed one"
    return {"verb": verb.name, "kills": done, "found": found, "seconds": round(took, 2), "resumed": resumed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each verb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="default")
    parser.add_argument("--verbs", default="", help="only these, separated by commas")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    vars(partitions)["WINDOW"] = WINDOW
    reconstruction.windows.__defaults__ = (WINDOW,)
    results.ROWS = WINDOW
    rng = random.Random(arguments.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for verb in verbs(Path(folder), arguments.model):
            if arguments.verbs and verb.name not in arguments.verbs.split(","):
                continue
            rows.append(trial(verb, Path(folder), arguments.kills, rng))
            print(rows[-1], file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps(rows))
        return
    print("| verb | kills | under the final name afterwards | undisturbed |\n|---|---|---|---|")
    for row in rows:
        said = ", ".join(f"{count} {what}" for what, count in sorted(row["found"].items()))
        print(f"| {row['verb']} | {row['kills']} | {said} | {row['seconds']} s |")


if __name__ == "__main__":
    main()
