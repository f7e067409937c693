"""Make a model: simulate labelled events, and train on them.

Both functions need extras. They import them when they are called, so importing this module is fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairton.errors import MissingExtraError
from pairton.topology import Topology

if TYPE_CHECKING:
    from pairton.generator.card import Card
    from pairton.generator.production import Counts
    from pairton.training.loop import Result
    from pairton.training.recipes import Recipe

__all__ = ["generate", "train"]


def generate(
    topology: Topology | str | Path,
    output: str | Path,
    n_events: int | None = None,
    *,
    process: str | None = None,
    seed: int = 1,
    keep: str = "selected",
    filtered: bool = False,
    copies: int = 1,
    lhe: str | Path | None = None,
    card: Card | str | Path = "atlas",
    pythia: Sequence[str] = (),
    jobs: int | str = 1,
    resume: bool = False,
    force: bool = False,
    progress: Callable[[bool, Counts], None] | None = None,
) -> Counts:
    """Simulate events of a topology: Pythia 8, a fast detector, jets, b-tags, truth.

    Equal arguments give equal files, whatever `jobs` is. Needs the extra `generate`.

    Args:
        topology: A built-in name, a YAML file or a `Topology`; or `multijet` for background.
        output: The file to write; its suffix chooses the format (.h5, .root, .parquet).
        n_events: How many events to simulate. With `lhe`, all events of that file by default.
        process: A process other than the topology's own, as background: `multijet`, or the name of a topology.
        seed: From 0 to 29,999. Different seeds never share events.
        keep: Which events to write: `all`, `selected` (those that pass the topology's selection), or
            `reconstructible` (of those, the events in which at least one particle has all its objects).
        filtered: Drop events with soft or forward quarks before the shower. Faster, and biased.
        copies: How many times each collision passes the detector. Copies share their id; use them to train, never
            to test.
        lhe: A Les Houches file of another generator.
        card: The detector: a built-in card, a YAML file or a `Card`.
        pythia: Additional Pythia settings, one string per setting.
        jobs: How many processes to run on this machine; or a Dask cluster: the address of its scheduler, or its
            scheduler file.
        resume: Continue an interrupted run with the same arguments.
        force: Replace the output if it exists.
        progress: Called after every chunk with two arguments: whether the chunk is new, and its counts.

    Returns:
        How many events were tried, simulated, selected and kept.

    Raises:
        ConfigError: An argument is unknown or out of range.
        TopologyError: The topology cannot be read.
        OutputError: The output exists and neither `resume` nor `force` is given, or it cannot be written.
        MissingExtraError: Pythia or FastJet is not installed.

    Examples:
        >>> import pairton
        >>> counts = pairton.generate("ttbar_allhad", "events.h5", 5, keep="all")  # doctest: +SKIP
        >>> counts.kept  # doctest: +SKIP
        5
        >>> pairton.generate("ttbar_allhad", "events.h5", 0)
        Traceback (most recent call last):
        pairton.errors.ConfigError: n_events is 0, but must lie between 1 and 30000000: use more seeds for more
    """
    from pairton._common.parallel import workers
    from pairton.generator.production import produce
    from pairton.generator.settings import make_settings

    settings = make_settings(
        topology,
        n_events,
        process=process,
        seed=seed,
        keep=keep,
        filtered=filtered,
        copies=copies,
        lhe=lhe,
        card=card,
        pythia=tuple(pythia),
    )
    with workers(jobs) as pool:
        return produce(settings, Path(output), resume=resume, force=force, progress=progress, **pool)


def train(
    recipe: Recipe | str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    topology: str | Path | None = None,
    init: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    folds: int | None = None,
    seed: int | None = None,
    devices: int | None = None,
    **options: Any,
) -> Result:
    """Train a model on files with labelled events.

    Afterwards `out` holds the best model on validation events, ready for `pairton.load_model`, with the state to
    resume from and the logs. Needs the extra `train`.

    Args:
        recipe: A built-in name (`cpu`, `iterative`, `paper`, ...), a YAML file or a `Recipe`.
        data: One file or several, in any format that `pairton.read` knows.
        out: The folder of the model.
        topology: A decay tree in place of the recipe's, when `recipe` is a name or a file.
        init: A model whose weights the training starts from (fine-tuning).
        resume: Continue the training in `out`.
        force: Start again in a folder that already holds a training or a model. It is removed once the new
            training can start.
        folds: Train this many networks, each on the events of all folds but one. The model in `out` then uses, for
            each event, the network that was not trained on it.
        seed: A seed in place of the recipe's.
        devices: How many processes to train in, in place of the recipe's number.
        **options: How to read the files, as for `pairton.iterate`.

    Returns:
        The steps taken, the steps planned, and the validation efficiencies of the model that was kept.

    Raises:
        ConfigError: The recipe has an unknown key, or a value out of range; or `resume` and `force` are given.
        TrainingError: The training cannot start or continue, for example without labelled events.
        OutputError: `out` already holds a training or a model, and neither `resume` nor `force` is given; or it
            holds the model of `init`.
        MissingExtraError: torch or Lightning is not installed.

    Examples:
        >>> import pairton
        >>> result = pairton.train("cpu", "events.h5", "my-model")  # doctest: +SKIP
        >>> model = pairton.load_model("my-model")  # doctest: +SKIP
        >>> pairton.train("cpuu", "events.h5", "my-model")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        pairton.errors.ConfigError: ...; did you mean 'cpu'?
    """
    try:
        from pairton.training import load_recipe
        from pairton.training import train as run
    except ImportError as error:
        raise MissingExtraError("train", error.name or "torch") from None
    chosen = load_recipe(recipe, topology) if isinstance(recipe, str | Path) else recipe
    changes = {name: value for name, value in (("seed", seed), ("devices", devices)) if value is not None}
    files = [data] if isinstance(data, str | Path) else data
    return run(
        chosen.with_run(**changes), files, out, init=init, resume=resume, force=force, folds=folds, **options
    )
