"""SPANet's event files as topologies: the same slots and, permutation by permutation, the same group."""

import itertools

import pytest
import yaml

from pairton.errors import TopologyError
from pairton.spanet.spanet_event import load_spanet_event
from pairton.topology import load_topology, same_tree
from pairton.topology.extras import labels_of

JETS = {"SEQUENTIAL": {"Jets": {"pt": "log_normalize", "eta": "normalize", "phi": "none", "btag": "none"}}}
LEPTONS = {"SEQUENTIAL": JETS["SEQUENTIAL"] | {"Leptons": {"pt": "log", "eta": "none", "phi": "none"}}}
TOP = ["q1", "q2", "b"]
PAIR = [["q1", "q2"]]


def write(path, event, permutations=None, inputs=JETS, **more):
    raw = {"INPUTS": inputs, "EVENT": event, **more}
    if permutations is not None:
        raw["PERMUTATIONS"] = permutations
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    return path


def slow_group(event, permutations):
    """All relabellings of `particle/product` that SPANet's permutations generate, by trying products of them."""
    names = {p: [next(iter(x)) if isinstance(x, dict) else x for x in products] for p, products in event.items()}
    labels = [f"{p}/{x}" for p, products in names.items() for x in products]

    def cycles(entries):
        for entry in entries or []:
            if isinstance(entry[0], list):
                yield entry  # all at once
            else:
                yield from ([list(pair)] for pair in itertools.combinations(entry, 2))

    moves = []
    for owner, entries in (permutations or {}).items():
        for together in cycles(entries):
            move = {label: label for label in labels}
            for cycle in together:
                for one, other in zip(cycle, cycle[1:] + cycle[:1], strict=True):
                    if owner == "EVENT":
                        for mine, theirs in zip(names[one], names[other], strict=True):
                            move[f"{one}/{mine}"] = f"{other}/{theirs}"
                    else:
                        move[f"{owner}/{one}"] = f"{owner}/{other}"
            moves.append(move)
    group = {tuple(labels)}
    while True:
        more = {tuple(move[label] for label in element) for element in group for move in moves}
        if more <= group:
            return labels, group
        group |= more


EVENTS = {
    "ttbar": ({"t1": TOP, "t2": TOP}, {"EVENT": [["t1", "t2"]], "t1": PAIR, "t2": PAIR}),
    "another order": ({"t1": ["b", "q1", "q2"], "t2": ["b", "q1", "q2"]}, {"t1": PAIR, "t2": PAIR}),
    "no permutations": ({"t1": TOP, "h": ["b1", "b2"]}, None),
    "ttH": (
        {"t1": TOP, "t2": TOP, "h": ["b1", "b2"]},
        {"EVENT": [["t1", "t2"]], "t1": PAIR, "t2": PAIR, "h": [["b1", "b2"]]},
    ),
    "four tops": (
        {f"t{k}": TOP for k in range(1, 5)},
        {"EVENT": [["t1", "t2", "t3", "t4"]], **{f"t{k}": PAIR for k in range(1, 5)}},
    ),
    "two pairs": (
        {name: ["b1", "b2"] for name in ("h1", "h2", "a1", "a2")},
        {"EVENT": [["h1", "h2"], ["a1", "a2"]], **{n: [["b1", "b2"]] for n in ("h1", "h2", "a1", "a2")}},
    ),
    "two classes of products": ({"X": ["a1", "a2", "c1", "c2", "c3"]}, {"X": [["a1", "a2"], ["c1", "c2", "c3"]]}),
    "other names": (
        {"top": TOP, "anti": ["j1", "j2", "bbar"]},
        {"EVENT": [["top", "anti"]], "top": PAIR, "anti": [["j1", "j2"]]},
    ),
    "names that meet": ({"b": ["t", "b"], "t": ["b1", "b2"], "W": TOP}, {"t": [["b1", "b2"]], "W": PAIR}),
    "pairs that overlap": ({name: ["x"] for name in "abcd"}, {"EVENT": [["c", "b"], [["a", "c"]]]}),
}


@pytest.mark.parametrize("name", EVENTS)
def test_the_group_is_that_of_spanet(name, tmp_path):
    event, permutations = EVENTS[name]
    topology = load_topology(write(tmp_path / "event.yaml", event, permutations))
    labels, group = slow_group(event, permutations)
    ours = labels_of(topology, "spanet")
    assert sorted(ours) == sorted(labels)
    place = [labels.index(label) for label in ours]
    assert {tuple(element[k] for k in place) for element in group} == {
        tuple(ours[k] for k in row) for row in topology.symmetries
    }
    assert topology.n_symmetries == len(group)


@pytest.mark.parametrize("together", [[["a", "b", "c"]], [["a", "b"], ["c", "d"]]])
def test_only_classes_of_names_are_possible(together, tmp_path):
    event = {name: ["x"] for name in "abcd"}
    with pytest.raises(TopologyError, match=r"PERMUTATIONS: EVENT lists .*, which exchanges several at once, but"):
        load_topology(write(tmp_path / "event.yaml", event, {"EVENT": [together]}))


def test_two_hadronic_tops_are_the_built_in_topology(tmp_path):
    for products in (TOP, ["b", "q1", "q2"]):
        event = {"t1": products, "t2": products}
        found = load_topology(write(tmp_path / "event.yaml", event, EVENTS["ttbar"][1]))
        assert same_tree(found, load_topology("ttbar_allhad"))
        assert labels_of(found, "spanet") == labels_of(load_topology("ttbar_allhad"), "spanet")


def test_inputs_are_kinds(tmp_path):
    inputs = {
        "SEQUENTIAL": {"Jets": {"pt": "log"}, "Leptons": {"pt": "log"}, "FatJets": {"pt": "log", "phi": "none"}},
        "GLOBAL": {"Met": {"met": "log", "sin_phi": "none", "cos_phi": "none"}, "Event": {"ht": "log"}},
    }
    event = {"t": [{name: "Jets"} for name in TOP], "tl": [{"b": "Jets"}, {"l": "Leptons"}]}
    found = load_topology(write(tmp_path / "event.yaml", event, {"t": PAIR}, inputs))
    assert found.kinds == ("jet", "lepton", "fatjet", "met")  # ht has no direction: it is no object
    assert [slot.kind for slot in found.slots] == ["jet", "jet", "jet", "jet", "lepton"]
    assert found.extras.groups == {"jet": "Jets", "lepton": "Leptons", "fatjet": "FatJets", "met": "Met"}
    assert found.extras.joined == ()
    bare = load_topology(write(tmp_path / "bare.yaml", {"t": TOP, "tl": ["b", "l"]}, {"t": PAIR}, LEPTONS))
    assert [slot.kind for slot in bare.slots] == ["jet", "jet", "jet", "jet", "lepton"]
    assert bare.extras.joined == ("jet", "lepton")  # targets count through both


def test_a_topology_is_stored_and_read_back(tmp_path):
    from pairton.topology import parse_topology

    event = {"t": TOP, "tl": ["b", "l"]}
    found = load_topology(write(tmp_path / "event.yaml", event, {"t": PAIR}, LEPTONS))
    again = parse_topology(found.to_dict())
    assert again == found
    assert again.extras == found.extras


def test_all_sections(tmp_path):
    regressions = {"EVENT": ["m", ["pz", "laplacian"]], "t": {"PARTICLE": ["mass"], "b": [["pt", "log_gaussian"]]}}
    classifications = {"EVENT": ["signal"], "t": [{"PARTICLE": ["charge"]}], "h": None}
    path = write(
        tmp_path / "event.yaml",
        {"t": TOP, "h": ["b1", "b2"]},
        REGRESSIONS=regressions,
        CLASSIFICATIONS=classifications,
    )
    event = load_spanet_event(path)
    assert [(q.path, q.loss) for q in event.regressions] == [
        ("EVENT/m", "gaussian"),
        ("EVENT/pz", "laplacian"),
        ("t/PARTICLE/mass", "gaussian"),
        ("t/b/pt", "log_gaussian"),
    ]
    assert [(q.path, q.loss) for q in event.classifications] == [
        ("EVENT/signal", None),
        ("t/PARTICLE/charge", None),
    ]
    features = event.group("jet").features
    assert [(f.name, f.log, f.normalize) for f in features] == [
        ("pt", True, True),
        ("eta", False, True),
        ("phi", False, False),
        ("btag", False, False),
    ]
    assert load_spanet_event("ttbar_allhad") is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"EVENTS": {}}, "has no setting 'EVENTS'; did you mean 'EVENT'?"),
        ({"INPUTS": {"GLOBAL": {"Met": {"met": "log"}}}}, "INPUTS has no SEQUENTIAL input"),
        ({"INPUTS": {"SEQUENTAL": {}}}, "did you mean 'SEQUENTIAL'?"),
        ({"INPUTS": {"SEQUENTIAL": {"Jets": {"pt": "logarithm"}}}}, "INPUTS.SEQUENTIAL.Jets.pt is 'logarithm'"),
        ({"INPUTS": {"SEQUENTIAL": {"Jets": {}, "Source": {}}}}, "two groups with the kind jet (Jets, Source)"),
        ({"EVENT": {"t": ["q", "q"]}}, "must list each product once"),
        ({"EVENT": {"t": [{"q": "Jet"}]}}, "q has the input 'Jet', but there are Jets; did you mean 'Jets'?"),
        ({"EVENT": {"t": 3}}, "EVENT.t is 3, but must be a list"),
        ({"EVENT": {"t 1": ["q"]}}, "a name may only have letters"),
        ({"EVENT": {}}, "EVENT has no particle"),
        ({"PERMUTATIONS": {"T1": []}}, "PERMUTATIONS lists 'T1'"),
        ({"PERMUTATIONS": {"t1": [["q1", "q3"]]}}, "lists 'q3', but there are q1, q2, b"),
        ({"PERMUTATIONS": {"t1": [["q1", "q2", "q1"]]}}, "lists a name twice"),
        ({"PERMUTATIONS": {"EVENT": [["t1", "t2"]], "t1": PAIR}}, "exchanges t1 and t2, but their products"),
        ({"REGRESSIONS": {"EVENT": [["m", "poisson"]]}}, "[name, gaussian | laplacian | log_gaussian]"),
        ({"CLASSIFICATIONS": {"t3": {}}}, "lists 't3', but there are EVENT, t1, t2"),
        ({"CLASSIFICATIONS": {"t1": {"q9": ["x"]}}}, "t1 lists 'q9', but there are PARTICLE, q1, q2, b"),
    ],
)
def test_mistakes_are_one_line(change, said, tmp_path):
    raw = {"INPUTS": JETS, "EVENT": {"t1": TOP, "t2": TOP}} | change
    path = tmp_path / "event.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(TopologyError) as error:
        load_topology(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
