"""What is being run: events, the model for them, its settings, and how files are read.

The command line and the functions of Python make a `Run`. It opens each file once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import awkward as ak
import numpy as np

from pairton.errors import ConfigError, EventsError, InputError, ModelError, PairtonError, PairtonWarning
from pairton.events import Events
from pairton.events.objects import as_polar, make_objects, mev_median
from pairton.events.tags import with_table
from pairton.formats import IN_MEMORY_CHUNK, OpenFile, expand, iterate, options_for, sources
from pairton.formats.base import Source
from pairton.formats.files import is_url, sample_file
from pairton.formats.taggers import BTag
from pairton.formats.truth import BadLabels
from pairton.models import model as models
from pairton.models.kinematic_model import is_kinematic
from pairton.models.storage import builtin_models, read_info
from pairton.reconstruction.assigner import Assigner, windows
from pairton.reconstruction.result import Reconstruction
from pairton.reconstruction.result_columns import same_kept
from pairton.reconstruction.run_settings import DEFAULT_SETTINGS, RunSettings
from pairton.topology import JET, Topology, load_topology
from pairton.topology.kinds import KINDS
from pairton.topology.vocabulary import same_alternative

if TYPE_CHECKING:
    from pairton.models.model import Model

__all__ = ["READ_ROWS", "Run", "are_paths", "by_kind", "labelled_topology"]

READ_ROWS = 16_384  # events read at a time; more would need more memory and not be faster


class Run:
    """Events, the model for them, and its settings; to be used as a context manager.

    inputs            files, as for `pairton.read`; `Events`; or arrays of objects, as for `pairton.reconstruct`.
                      None stands for the sample events of the model
    model             a model, its name or path, or several. None or "default" is the model for the topology of
                      the events: that in `options`, else that which the first file stores, else that of its labels
    settings          settings of the reconstruction
    engine, threads   as for `pairton.load_model`, for models that are given by name
    labelled          whether truth is needed: a mixture then answers for the topology of the events
    baselines         names of baselines, which are enough if there is no model for the topology
    options           options of `pairton.iterate`

    >>> with Run("sample:ttbar_allhad") as run:
    ...     run.model.name, run.topology.name, run.pile_up
    ('ttbar_allhad', 'ttbar_allhad', False)
    """

    def __init__(
        self,
        inputs: Any,
        model: Model | str | Path | Sequence[Model | str | Path] | None = None,
        settings: RunSettings = DEFAULT_SETTINGS,
        /,  # the keyword `settings` is an option of `pairton.iterate`
        *,
        engine: str = "onnx",
        threads: int | None = None,
        labelled: bool = False,
        baselines: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.events = inputs if isinstance(inputs, Events) else None  # those in memory
        self.options = {"bad_labels": BadLabels(), **options}
        self.files = expand(inputs) if are_paths(inputs) else []
        if (len(self.files) > 1 or self.options.get("where")) and not labelled:
            self.options.setdefault("traced", True)
        self.first = self._open_first()
        self._counts: dict[str, int] = {}  # file -> events, for those that were opened
        try:
            requested = model if isinstance(model, list | tuple) else [model]
            models = [self._load(each, engine, threads, baselines) for each in requested]
            self.models: list[Model] = [self._for_events(each, labelled) for each in models if each is not None]
            if inputs is None:
                self.files = [str(sample_file(self.model.topology.name))]
                self.first = self._open_first()
            elif not self.files and self.events is None:
                self.events = Events(by_kind(inputs), self.model.topology)
            if self.first is not None:
                self.options |= options_for(self.model, self.options) if self.models else {}
            elif (given := options.pop("btag", None)) is not None and self.events is not None:
                if (btag := BTag.parse(given)).table is None or btag.cut is not None:
                    raise ConfigError(
                        f"--btag {btag.text}: jets in memory have their own tags: give a table of efficiencies, "
                        "without a cut (`pairton list tags`)"
                    )
                self.events = with_table(self.events, btag.table)
            self.settings = settings
            if self.models:
                self.settings = settings.for_events(self.model, self.topology, self.pile_up)
        except BaseException:
            self.close()
            raise

    def _open_first(self) -> OpenFile | None:
        if not self.files:
            return None
        return OpenFile(self.files[0], self.options.get("format"), self.options.get("isolate"))

    def _load(self, model: Any, engine: str, threads: int | None, baselines: Sequence[str]) -> Model | None:
        """Load a model that is given by name, or choose one; None if the baselines must be enough."""
        if model is not None and not isinstance(model, str | Path):
            loaded: Model = model
            return loaded
        name: str | Path = "default" if model is None else model
        if str(name) == "default" and self.known_topology is not None:
            try:
                name = models.model_for(self.known_topology)
            except ModelError as error:
                if not baselines:
                    raise
                only = f"{error}; only {', '.join(baselines)} is evaluated"
                warnings.warn(only, PairtonWarning, stacklevel=4)
                return None
        topology = self.options.get("topology") if self.events is None else self.events.topology
        if topology is None and is_kinematic(name):
            topology = self.known_topology
        isolate = self.options.get("isolate")
        return models.load_model(name, engine=engine, threads=threads, topology=topology, isolate=isolate)

    def _for_events(self, model: Any, labelled: bool) -> Model:
        """A model for the topology of the events; ModelError if a network of several needs to be told which."""
        if not isinstance(model, models.Model):  # of the user
            return model  # type: ignore[no-any-return]
        asked = self.options.get("topology") if self.events is None else self.events.topology
        if asked is not None:
            model = model.for_topology(load_topology(asked))
        elif model.topology.alternatives:  # a vocabulary, or a mixture
            stored = None if self.first is None else self.first.stored_topology
            foreign = stored is not None and same_alternative(model.topology, stored) is None
            if labelled or foreign or model.network is None:
                if (tree := self.known_topology) is None:
                    names = ", ".join(tree.name for tree in model.topology.alternatives)
                    raise ModelError(
                        f"{model.name} answers for {names}, and for other trees of their particles: give the "
                        "topology of these events with --topology"
                    )
                model = model.for_topology(tree)
        if model.zero_shot:
            warnings.warn(
                f"{model.name} was not trained on {model.topology.name}, only on its particles: its probabilities "
                "are not calibrated for such events",
                PairtonWarning,
                stacklevel=4,
            )
        return model  # type: ignore[no-any-return]

    @cached_property
    def known_topology(self) -> Topology | None:
        """The topology of the events, without a model: asked for, stored, or that of the labels."""
        if self.events is not None:
            return self.events.topology
        if (asked := self.options.get("topology")) is not None:
            return load_topology(asked)
        if self.first is None:
            return None
        return self.first.stored_topology or labelled_topology(self.first, self._source_options)

    @property
    def model(self) -> Model:
        """The (first) model."""
        return self.models[0]

    @cached_property
    def assigner(self) -> Assigner:
        return Assigner(self.model, self.settings)

    @property
    def _source_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if name not in ("format", "isolate")}

    def source(self, **options: Any) -> Source:
        """The first file, as it is read; `options` replace those of the run."""
        assert self.first is not None
        return self.first.source(**{**self._source_options, **options})

    @property
    def topology(self) -> Topology:
        """The topology with which the events are read."""
        if self.events is not None:
            return self.events.topology
        asked = self.options.get("topology")
        return self.source().topology if asked is None else load_topology(asked)

    @cached_property
    def pile_up(self) -> bool:
        """Whether there may be jets from pile-up: not in events prepared for a network, or simulated here."""
        return self.events.pile_up if self.events is not None else bool(self.source().metadata.get("pile_up"))

    @property
    def expected(self) -> int | None:
        """The number of events; as long as files are not opened, an estimate. None before the first."""
        opened = len(self._counts)
        return len(self.files) * sum(self._counts.values()) // opened if opened else None

    def chunks(self, chunk: int = READ_ROWS, opened: Any = None, **options: Any) -> Iterator[Events]:
        """The events, in chunks; `options` replace those of the run."""

        def note(source: Source) -> None:
            self._counts[source.path] = source.n_events
            if opened is not None:
                opened(source)

        if self.events is not None:
            tree = {name: options[name] for name in options.keys() & {"topology"}}
            return iter([self.events.replace(**tree) if tree else self.events])
        return iterate(self.files, chunk=chunk, first=self.first, opened=note, **{**self.options, **options})

    def sources(self) -> Iterator[Source]:
        """The files, opened one after the other."""
        for source in sources(self.files, first=self.first, **self.options):
            self._counts[source.path] = source.n_events
            yield source

    def read(self) -> Events:
        """All events."""
        return Events.concatenate(list(self.chunks(IN_MEMORY_CHUNK))) if self.events is None else self.events

    def reconstruct(self, chunk: int = READ_ROWS, opened: Any = None) -> Iterator[Reconstruction]:
        """Reconstruct the events in fixed windows of rows; yields at least one window, which may be empty.

        chunk    events read at a time; it does not change the answers
        opened   a function that is called with each `Source`
        """
        for window in windows(same_kept(self.chunks(chunk, opened))):
            self.assigner.check(window.topology)
            yield self.assigner.run(window).made_by(self.model, self.assigner.settings)

    def refuse_inputs(self, outputs: Sequence[Path]) -> None:
        """Raise InputError if an output would replace an input."""
        for name in self.files:
            for output in outputs:
                if not is_url(name) and output.exists() and output.samefile(name):
                    raise InputError(f"{output} is an input file: write the result elsewhere")

    def close(self) -> None:
        if self.first is not None:
            self.first.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def are_paths(inputs: Any) -> bool:
    """Whether inputs are files, not events in memory."""
    several = inputs if isinstance(inputs, list | tuple) else [inputs]
    return all(isinstance(each, str | os.PathLike) for each in several)


def labelled_topology(file: OpenFile, options: Mapping[str, Any]) -> Topology | None:
    """The topology of the built-in model that uses the most labels of a file; with a warning.

    None if the options give a topology, if the file can be read without one, or if no model has its labels.
    """
    if options.get("topology") is not None:
        return None
    options = {**options, "truth": True}
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PairtonWarning)  # repeated when the file is read
        with suppress(PairtonError):
            file.source(**options)
            return None
        for name, folder in builtin_models().items():
            topology = read_info(folder).topology
            with suppress(PairtonError):
                if file.source(**{**options, "topology": topology}).has_truth and name == topology.name:
                    found.append(topology)
    chosen = max(found, key=lambda topology: len(topology.slots), default=None)
    if chosen is not None:
        warnings.warn(
            f"{file.path} is read as {chosen.name}, the built-in model that uses the most of its labels: choose "
            "another with --topology or --model",
            PairtonWarning,
            stacklevel=3,
        )
    return chosen


def by_kind(given: Any) -> dict[str, ak.Array]:
    """Objects by kind, from an array of jets or a mapping of kinds to arrays.

    As in files, leptons and photons need no mass, and missing energy is pt and phi: one record per event, or a
    list with one record.

    >>> by_kind({"met": ak.Array({"pt": [30.0], "phi": [0.5]})})["met"].tolist()
    [[{'pt': 30.0, 'eta': 0.0, 'phi': 0.5, 'energy': 30.0}]]
    """
    kinds = given if isinstance(given, Mapping) else {JET: given}
    return {kind: _as_objects(kind, ak.Array(array)) for kind, array in kinds.items()}


def _as_objects(kind: str, array: ak.Array) -> ak.Array:
    if KINDS[kind].transverse and array.ndim == 1:  # one record per event
        array = ak.from_regular(array[:, np.newaxis], axis=1)
    array = as_polar(array)
    given = {"m": "mass", "E": "energy"}
    fields = {given.get(name, name): array[name] for name in ak.fields(array)}
    massive = bool(fields.keys() & {"energy", "mass"})
    needed = ("pt", "phi") if KINDS[kind].transverse else ("pt", "eta", "phi")
    missing = [name for name in needed if name not in fields]
    missing += ["energy or mass"] * (not massive and not KINDS[kind].massless)
    if missing:
        found = ", ".join(sorted(fields)) or "no fields"
        raise EventsError(f"the {kind} array lacks {', '.join(missing)}: found {found}")
    if KINDS[kind].transverse:
        fields |= {"eta": ak.zeros_like(fields["pt"]), "energy": fields["pt"]}
    elif not massive:
        fields["mass"] = ak.zeros_like(fields["pt"])
    if "energy" in fields:
        fields.pop("mass", None)
    if (median := mev_median(np.asarray(ak.flatten(array["pt"], axis=None)))) is not None:
        raise EventsError(
            f"the median pT of the {kind} array is {median:.0f}, which looks like MeV: divide pT, energy and mass "
            "by 1000 (or give pairton.Events if it is right)"
        )
    numbers = {name: values for name, values in fields.items() if values.ndim == 2 and not ak.fields(values)}
    return make_objects(**numbers)
