"""Options that several verbs share, in the groups in which `--help` shows them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pairton.errors import ConfigError

__all__ = [
    "DECODINGS",
    "GroupedCommand",
    "answer_options",
    "completing",
    "decoding_option",
    "force_option",
    "jobs_option",
    "model_options",
    "option",
    "parse_pairs",
    "reading_options",
]

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

INPUT, PHYSICS, RUNNING, OUTPUT = "Input", "Physics", "Running", "Output"
GROUPS = (INPUT, PHYSICS, RUNNING, OUTPUT)

# folders and files of what is built in; the shell must not wait for imports
BUILT_IN = {
    "card": ("generator/cards", "*.yaml"),
    "model": ("models", "*/model.json"),
    "recipe": ("recipes", "**/*.yaml"),
    "topology": ("topology/builtin", "*.yaml"),
}
DECODINGS = ("exact", "steps", "one_shot", "beam", "one_by_one", "hyper")
ABSENT = "absent"  # in `--answer`: particles may be left out


class GroupedOption(click.Option):
    """An option with the group in which help shows it."""

    def __init__(self, *names: Any, group: str = OUTPUT, **how: Any) -> None:
        super().__init__(*names, **how)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows its options in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for group in (*GROUPS, "Other"):
            options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
            shown = [p for p in options if getattr(p, "group", "Other") == group]
            records = [record for p in shown if (record := p.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(group):
                    formatter.write_dl(records)


def option(group: str, *names: str, **how: Any) -> Callable[[Command], Command]:
    """An option in a group of `--help`."""
    return click.option(*names, cls=GroupedOption, group=group, **how)


def completing(what: str | Iterable[str]) -> Complete:
    """Shell completion with built-in names of a sort, or given names, and with files."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
        names = built_in(what) if isinstance(what, str) else what
        return [*(CompletionItem(n) for n in names if n.startswith(begun)), CompletionItem(begun, type="file")]

    return complete


def built_in(what: str) -> list[str]:
    """The built-in names of a sort."""
    if what == "format":
        from pairton.formats import REGISTRY

        return list(REGISTRY)
    if what == "tags":
        from pairton.events.tags import builtin_tables

        return list(builtin_tables())
    folder, pattern = BUILT_IN[what]
    top = Path(__file__).parent.parent / folder
    found = (path.parent if path.suffix == ".json" else path.with_suffix("") for path in top.glob(pattern))
    return sorted([path.relative_to(top).as_posix() for path in found] + ["kinematic"] * (what == "model"))


force_option = option(OUTPUT, "--force", is_flag=True, help="Replace the output if it exists.")


_READING = {
    "topology": option(
        INPUT,
        "--topology",
        metavar="NAME|FILE",
        shell_complete=completing("topology"),
        help="Decay tree. [the model's; without a model the file's own, else ttbar_allhad]",
    ),
    "map": option(
        INPUT,
        "--map",
        "maps",
        multiple=True,
        metavar="OURS=COLUMN,…",
        help="Columns to read: pt=Jet_pt,… for jets; lepton.pt=el_pt,met.phi=met_phi,… for other objects.",
    ),
    "variation": option(
        INPUT,
        "--variation",
        "--variations",
        "varied",
        multiple=True,
        metavar="NAME:jet.pt=COLUMN,…",
        help="Columns of varied objects, for results that end in _NAME; or a YAML file of them, or nanoaod or "
        "topcptoolkit for all that the file has. May be repeated.",
    ),
    "btag": option(
        INPUT,
        "--btag",
        metavar="TAGGER[:CUT]|TABLE[:CUT]",
        shell_complete=completing("tags"),
        help="The b-tag: a score, and above which value a jet is tagged; or the efficiencies of the tagger: a "
        "table that `pairton list tags` has, or a YAML file; none: run without tags.",
    ),
    "keep": option(
        INPUT,
        "--keep",
        multiple=True,
        metavar="COLUMN,…",
        help="Further columns to copy to the output; * and ? are wildcards; file and entry say where an event is "
        "from.",
    ),
    "where": option(
        INPUT,
        "--where",
        metavar="CONDITIONS",
        help="Read only events whose columns fulfil conditions, as in 'HLT_IsoMu24 & (sum(Jet_pt > 30) >= 4)'.",
    ),
    "set": option(
        INPUT,
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="A fact about the input: format=NAME, tree=NAME (of ROOT, or a collection of HDF5), units=GeV|MeV, "
        "or a setting on the page of its format.",
    ),
    "strict": option(
        INPUT, "--strict", is_flag=True, help="Treat a bad truth label as an error, not as a warning."
    ),
    "isolate": option(
        INPUT,
        "--isolate",
        is_flag=True,
        help="Read files and run models of others in worker processes with limited memory and time.",
    ),
}

FACTS = ("format", "tree", "units")  # keys of `--set` that all formats have


def reading_options(*without: str, variations: bool = False) -> Callable[[Command], Command]:
    """Add the options of reading, and pass them as one keyword `reading`, for `pairton.iterate(**reading)`.

    without      names of options that have no effect on the verb
    variations   whether variations have an effect
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def wrapper(
            *args: Any,
            topology: str | None,
            maps: tuple[str, ...],
            varied: tuple[str, ...] = (),
            settings: tuple[str, ...],
            keep: tuple[str, ...] = (),
            isolate: bool = False,
            btag: str | None = None,
            where: str | None = None,
            strict: bool = False,
            **rest: Any,
        ) -> Any:
            from pairton.formats.taggers import BTag
            from pairton.formats.variations import parse_settings, parse_variations

            values = parse_settings(settings)
            asked = {name: values.pop(name, None) for name in FACTS} | {
                "topology": topology,
                "map": parse_pairs("map", maps, str, "pt=Jet_pt,lepton.pt=el_pt"),
                "btag": None if btag is None else BTag.parse(btag),  # the content of a table is a setting
                "keep": [name.strip() for entry in keep for name in entry.split(",") if name.strip()],
                "settings": values,
                "variations": parse_variations(varied),
                "where": where,
                "strict": strict,
                "isolate": isolate,
            }
            reading = {name: value for name, value in asked.items() if value}
            return command(*args, reading=reading, **rest)

        unused = {*without} if variations else {*without, "variation"}
        for name in reversed(_READING):
            wrapper = wrapper if name in unused else _READING[name](wrapper)
        return wrapper  # type: ignore[return-value]  # the keywords differ, the command is the same to click

    return decorate


def decoding_option(param: str = "decoding", **how: Any) -> Callable[[Command], Command]:
    """`--decoding`, as one value or several."""
    return option(
        PHYSICS,
        "--decoding",
        param,
        metavar="NAME",
        help="exact, steps, one_shot, beam (beam:K keeps K hypotheses), one_by_one or hyper"
        + ("; repeat to compare." if how else ".")
        + " [the model's]",
        shell_complete=completing(DECODINGS),
        **how,
    )


def answer_options(command: Command) -> Command:
    """Add `--answer` and `--prior`, and pass them as the arguments `answer`, `allow_absent` and `prior`."""

    @functools.wraps(command)
    def wrapper(*args: Any, answer: str, prior: tuple[str, ...], **rest: Any) -> Any:
        words = [word.strip() for word in answer.split(",")]
        kinds = [word for word in words if word != ABSENT]
        if len(kinds) > 1:
            raise ConfigError(f"answer {answer!r}: choose one of {' and '.join(kinds)}")
        question = {"answer": kinds[0] if kinds else "event", "allow_absent": ABSENT in words}
        files = [entry for entry in prior if entry.endswith((".yaml", ".yml"))]
        if files:
            from pairton.reconstruction.run_settings import read_prior

            if len(prior) > 1:
                raise ConfigError(f"--prior {files[0]}: give this file alone, or factors")
            factors = read_prior(files[0])
        else:
            factors = parse_pairs("prior", prior, float, "nothing=5")
        return command(*args, **question, prior=factors, **rest)

    wrapper = option(
        PHYSICS,
        "--prior",
        multiple=True,
        metavar="PATTERN=FACTOR,…",
        help="How much more frequent a pattern is than in training, as in nothing=5 or incomplete=0; or a file of "
        "`pairton measure prior`.",
    )(wrapper)
    return option(  # type: ignore[return-value]  # the keywords differ, the command is the same to click
        PHYSICS,
        "--answer",
        default="event",
        show_default=True,
        metavar="event|particles[,absent]",
        help="Maximise the expected number of right events, or of right particles; absent: leave out particles "
        "that are probably absent.",
        shell_complete=completing(("event", "particles", f"event,{ABSENT}", f"particles,{ABSENT}")),
    )(wrapper)


def model_options(command: Command) -> Command:
    """Add the options that say how a model is run: arguments of `pairton.reconstruct`."""
    cuts = "Use only {} that pass cuts, as in pt>30,abs_eta<2.4; none: use all. [the cuts that are printed]"
    most = "Use at most this many objects of each kind, those of highest pT."
    engine = "onnx, or torch if it is installed; on a GPU onnx:cuda or torch:cuda."
    for add in (
        option(RUNNING, "--engine", metavar="NAME[:DEVICE]", default="onnx", show_default=True, help=engine),
        option(RUNNING, "--threads", type=int, metavar="N", help="Threads for the network. [all cores]"),
        answer_options,
        option(PHYSICS, "--leptons", metavar="CUTS", help=cuts.format("leptons")),
        option(PHYSICS, "--jets", metavar="CUTS", help=cuts.format("jets")),
        option(PHYSICS, "--max-objects", type=int, default=12, show_default=True, help=most),
    ):
        command = add(command)
    return command


def parse_pairs(
    name: str, entries: tuple[str, ...], value: Callable[[str], Value], example: str
) -> dict[str, Value]:
    """Parse `KEY=VALUE,KEY=VALUE` of an option, given once or several times.

    >>> parse_pairs("map", ("pt=Jet_pt,eta=Jet_eta", "weight=w"), str, "pt=Jet_pt")
    {'pt': 'Jet_pt', 'eta': 'Jet_eta', 'weight': 'w'}
    """
    found: dict[str, Value] = {}
    for part in (part.strip() for entry in entries for part in entry.split(",")):
        key, equals, text = (piece.strip() for piece in part.partition("="))
        try:
            given = value(text)
        except ValueError:
            equals = ""
        if not (key and equals and text):
            raise ConfigError(f"{name} {part!r}: write it as in {example}")
        if key in found:
            raise ConfigError(f"{name} names {key!r} twice ({found[key]} and {text}): keep one")
        found[key] = given
    return found


def jobs_option(where: str) -> Callable[[Command], Command]:
    """`--jobs`: a number of processes, or a Dask cluster."""

    def parsed(_: click.Context, __: click.Parameter, given: str | None) -> int | str | None:
        return int(given) if given is not None and given.lstrip("-").isdigit() else given

    return option(
        RUNNING,
        "--jobs",
        metavar="N|CLUSTER",
        callback=parsed,
        help=f"Run in N processes, or on a Dask cluster: its address or scheduler file. {where}",
    )
