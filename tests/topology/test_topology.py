import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest

from pairton.errors import TopologyError
from pairton.topology import Cuts, Selection, Stage, Topology, builtin_topologies, load_topology, parse_topology
from pairton.topology.extras import bin_index, bin_names, labels_of


def make(event, particles, **more):
    return parse_topology({"name": "test", "event": event, "particles": particles, **more})


TTW = (["t", "t", "W"], {"t": ["W", "b"], "W": ["q", "q"]})


def test_shipped_topologies():
    sizes = {
        name: (len(t.particles), len(t.slots), t.n_symmetries)
        for name in builtin_topologies()
        for t in [load_topology(name)]
    }
    assert sizes == {
        "hh4b": (2, 4, 8),
        "hh4b_boosted": (2, 6, 8),
        "ttbar_allhad": (4, 6, 8),
        "ttbar_allhad_boosted": (4, 10, 8),
        "ttbar_dilep": (2, 4, 2),
        "ttbar_semilep": (3, 5, 2),
        "tth_allhad": (5, 8, 16),
        "tth_semilep": (4, 7, 4),
        "tttt_allhad": (8, 12, 384),
        "wh": (2, 4, 4),
        "ww_allhad": (2, 4, 8),
        "zh": (2, 4, 4),
    }


@pytest.mark.parametrize("name", builtin_topologies())
def test_symmetries_form_a_group(name):
    topology = load_topology(name)
    group = {tuple(row) for row in topology.symmetries}
    assert len(group) == topology.n_symmetries
    some = sorted(group)[:: max(1, len(group) // 20)]
    for a, b in itertools.product(some, some):
        assert tuple(np.array(a)[list(b)]) in group
    # every symmetry maps each particle's slots onto those of a particle of the same type
    for row in some:
        for particle in topology.particles:
            image = {row[s] for s in particle.slots}
            assert any(image == set(other.slots) for other in topology.of_type(particle.type))


def test_assignment_counts_are_those_of_the_method():
    ttbar = load_topology()
    assert [ttbar.count_assignments(n) for n in range(5, 11)] == [0, 90, 630, 2520, 7560, 18900]


def test_default_stages():
    stages = {name: [str(s) for s in load_topology(name).stages] for name in builtin_topologies()}
    assert stages == {
        "hh4b": ["H", "H"],
        "hh4b_boosted": ["H", "H"],
        "ttbar_allhad": ["W", "W", "t + t"],
        "ttbar_allhad_boosted": ["W", "W", "t + t"],
        "ttbar_dilep": ["tl", "tl"],
        "ttbar_semilep": ["W or tl", "W or tl", "t"],
        "tth_allhad": ["W or H", "W or H", "W or H", "t + t"],
        "tth_semilep": ["W or tl or H", "W or tl or H", "W or tl or H", "t"],
        "tttt_allhad": ["W", "W", "W", "W", "t + t + t + t"],
        "wh": ["W or H", "W or H"],
        "ww_allhad": ["W", "W"],
        "zh": ["Z or H", "Z or H"],
    }
    assert [str(s) for s in make(*TTW).stages] == ["W", "W", "W", "t + t"]
    assert [str(s) for s in make(["H", "j", "j"], {"H": ["b", "b"]}).stages] == ["H", "j + j"]


def test_levels_of_ttbar():
    ttbar = load_topology()
    names = [p.name for p in ttbar.particles]
    shown = [[{n for n, on in zip(names, row, strict=True) if on} for row in level] for level in ttbar.levels]
    assert shown[0] == [set()]
    assert sorted(map(sorted, shown[1])) == [["t1.W"], ["t2.W"]]
    assert shown[2] == [{"t1.W", "t2.W"}]
    assert shown[3] == [set(names)]


def test_four_steps_through_the_stages_key():
    ttbar = load_topology()
    four = replace(ttbar, given_stages=(Stage(("W",)), Stage(("W",)), Stage(("t",)), Stage(("t",))))
    assert [len(level) for level in four.levels] == [1, 2, 1, 2, 1]
    raw = four.to_dict()
    assert raw["stages"] == [["W"], ["W"], ["t"], ["t"]]
    assert parse_topology(raw) == four != ttbar


@pytest.mark.parametrize("name", builtin_topologies())
def test_round_trips(name):
    topology = load_topology(name)
    assert parse_topology(topology.to_dict()) == topology
    assert pickle.loads(pickle.dumps(topology)) == topology


def test_one_type_in_two_places():
    ttw = make(*TTW)
    assert [p.name for p in ttw.of_type("W")] == ["t1.W", "t2.W", "W"]
    assert ttw.n_symmetries == 16  # the W at the root does not mix with those of the tops
    assert ttw.types == ("W", "t")


def test_plain_jets_at_the_root():
    vbf = make(["H", "j", "j"], {"H": ["b", "b"]})
    assert [s.name for s in vbf.slots] == ["H.b1", "H.b2", "j1", "j2"]
    assert vbf.types == ("H", "j")
    assert vbf.n_symmetries == 4
    assert labels_of(vbf, "hyper") == ("1", "2", "3", "4")


def test_labels_can_be_given_and_deep_names_stay_unique():
    given = make(["H", "H"], {"H": ["b", "b"]}, labels={"hyper": [4, 3, 2, 1]})
    assert labels_of(given, "hyper") == ("4", "3", "2", "1")
    deep = make(["H"], {"H": ["W", "W"], "W": ["q", "q"]})
    assert labels_of(deep, "spanet") == ("H/W1_q1", "H/W1_q2", "H/W2_q1", "H/W2_q2")


def test_a_file_by_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: zz\nevent: [Z, Z]\nparticles:\n  Z: [j, j]\n")
    assert load_topology(path).types == ("Z",)
    assert isinstance(load_topology(str(path)), Topology)


TREE = {"name": "x", "event": ["a"], "particles": {"a": ["q"]}}
TOP = {"event": ["t"], "particles": {"t": ["W", "b"], "W": ["q", "q"]}}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"particles": {"a": ["b"], "b": ["a"]}}, ["a -> b -> a", "cycle"]),
        ({"particles": {"a": ["q"], "b": ["q"]}}, ["'b'", "remove"]),
        ({"particles": {"a": ["q"], "c": ["d"], "d": ["c"]}}, ["c -> d -> c"]),
        ({"event": [], "particles": {}}, ["[]", "at least one"]),
        ({"particle": {"a": ["q"]}}, ["'particle'", "did you mean 'particles'"]),
        ({"event": None}, ["event"]),
        ({"particles": {"a": "qq"}}, ["'qq'", "list"]),
        ({"event": ["a b"], "particles": {}}, ["'a b'", "letters"]),
        ({"event": ["a", 3], "particles": {}}, ["3", "must be a name of letters"]),
        ({"name": 7}, ["name is 7", "a word such as"]),
        ({"stages": [["c"]]}, ["'c'", "particles are a"]),
        ({"event": ["a", "a"], "stages": [["a"]]}, ["must reveal 2 x a"]),
        (TOP | {"stages": [["t"], ["W"]]}, ["children before parents"]),
        ({"event": ["t"], "particles": {"t": ["q1", "q2", "b"]}}, ["q1 and q2 and b", "one name"]),
        ({"event": ["H"], "particles": {"H": ["b", "bbar"]}}, ["b and bbar", "one name"]),
        ({"event": ["a", "a", "a1"], "particles": {"a": ["q"], "a1": ["q"]}}, ["a1", "two things"]),
        (TOP | {"event": ["t", "W"], "stages": [["W"], ["t"], ["W"]]}, ["[W], [t], [W]", "if W came first"]),
        ({"selection": {"event": {"jets": 6.7}}}, ["6.7", "whole"]),
        ({"selection": {"event": {"btags": float("inf")}}}, ["inf"]),
        ({"selection": {"event": {"jets": [6, 4]}}}, ["[6, 4]", "in this order"]),
        ({"selection": {"event": {"btags": [1, 2]}}}, ["[1, 2]", "btags", "must be a whole number"]),
        ({"selection": {"jets": {"pT": 3}}}, ["'pT'", "pt"]),
        ({"selection": {"jets": {"pt": -3}}}, ["-3"]),
        ({"labels": {"hyper": [1, 2]}}, ["2 different", "1 slots"]),
        ({"labels": {"hyper": ["u"]}}, ["numbers from 1"]),
        ({"event": ["event"], "particles": {"event": ["q"]}}, ["event_probability", "rename"]),
        ({"event": ["a", "complete"]}, ["complete_probability", "rename"]),
    ],
)
def test_malformed_files_say_what_was_read_and_what_is_allowed(change, parts):
    with pytest.raises(TopologyError) as caught:
        parse_topology(TREE | change, "mine.yaml")
    message = str(caught.value)
    assert message.startswith("mine.yaml")
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("raw", "part"), [([1, 2], "mapping"), ({"name": "x", "particles": {}}, "lacks event")])
def test_what_is_no_tree(raw, part):
    with pytest.raises(TopologyError, match=part):
        parse_topology(raw, "mine.yaml")


def test_files_that_are_not_yaml(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("name: [")
    with pytest.raises(TopologyError, match="not readable as YAML"):
        load_topology(path)
    path.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(TopologyError, match="not readable as YAML"):
        load_topology(path)
    with pytest.raises(TopologyError, match="did you mean 'ttbar_allhad'"):
        load_topology("ttbar_alhad")


def test_codes_are_kept_and_are_no_part_of_the_tree():
    plain = {"name": "x", "event": ["th", "j"], "particles": {"th": ["b", "b"]}}
    named = parse_topology({**plain, "codes": {"th": [6, 8], "j": [21]}})
    assert named.codes == (("th", (6, 8)), ("j", (21,)))
    assert parse_topology(named.to_dict()).codes == named.codes
    assert named == parse_topology(plain)


@pytest.mark.parametrize("codes", [{"tt": [6]}, {"th": 6}, {"th": []}, {"th": [-6]}, {"th": ["t"]}, [6]])
def test_wrong_codes_are_refused(codes):
    with pytest.raises(TopologyError, match="codes"):
        parse_topology({"name": "x", "event": ["th"], "particles": {"th": ["b", "b"]}, "codes": codes})


# -- what is invisible -------------------------------------------------------------------------------------

LEPTONIC = {
    "name": "x",
    "event": ["tl", "tl"],
    "particles": {"tl": ["b", "l"]},
    "objects": {"l": "lepton"},
    "context": ["met"],
    "codes": {"tl": [6]},
}


def test_neutrinos_of_a_resonance_that_the_tree_does_not_name():
    topology = parse_topology({**LEPTONIC, "invisible": {"tl": {"W": ["l", "nu"]}}})
    first, second = topology.neutrinos
    assert (first.name, first.lepton, first.others, first.mother) == ("tl1.nu", (1,), (0,), 0)
    assert (second.name, second.lepton, second.others, second.mother) == ("tl2.nu", (3,), (2,), 1)
    assert (first.mass, first.mother_mass) == (80.37, 172.5)
    assert parse_topology(topology.to_dict()).neutrinos == topology.neutrinos
    assert topology == parse_topology(LEPTONIC)  # no part of the tree that a network is for


def test_neutrinos_of_a_resonance_in_the_tree():
    tree = {"event": ["tl"], "particles": {"tl": ["Wl", "b"], "Wl": ["l"]}, "codes": {"tl": [6], "Wl": [24]}}
    topology = parse_topology({**LEPTONIC, **tree, "invisible": {"Wl": ["l", "nu"]}})
    (neutrino,) = topology.neutrinos
    assert (neutrino.name, neutrino.particle, neutrino.mother) == ("tl.Wl.nu", 1, 0)
    assert (neutrino.lepton, neutrino.others) == ((0,), (1,))
    assert parse_topology(topology.to_dict()).neutrinos == topology.neutrinos
    alone = {"event": ["W"], "particles": {"W": ["l"]}, "codes": {}}
    (neutrino,) = parse_topology({**LEPTONIC, **alone, "invisible": {"W": ["l", "nu"]}}).neutrinos
    assert neutrino.mother == -1  # only the mass of the W is known


def test_two_neutrinos_below_one_mass_have_no_mother():
    tree = {"event": ["H"], "particles": {"H": ["W", "W"], "W": ["l"]}, "codes": {}}
    topology = parse_topology({**LEPTONIC, **tree, "invisible": {"W": ["l", "nu"]}})
    assert [neutrino.mother for neutrino in topology.neutrinos] == [-1, -1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"invisible": ["tl"]}, "invisible is ..tl.., but must be a mapping"),
        ({"invisible": {"t": {"W": ["l", "nu"]}}}, "invisible has no setting 't'; did you mean 'tl'"),
        ({"invisible": {"tl": {"W": ["l"]}}}, "one new name"),
        ({"invisible": {"tl": {"W": ["nu"]}}}, "one new name"),
        ({"invisible": {"tl": {"W": ["l", "nu", "mu"]}}}, "one new name"),
        ({"invisible": {"tl": {"W": "l nu"}}}, "invisible.tl.W is 'l nu', but must be a list"),
        ({"invisible": {"tl": {"W": ["l", "nu"], "Z": ["b", "nu"]}}}, "2 resonances"),
        ({"invisible": {"tl": {"X": ["l", "nu"]}}}, "the mass of X is not known"),
        ({"invisible": {"tl": {"W": ["l", "nu"]}}, "context": []}, "add `context: .met.`"),
        ({"invisible": {"tl": {"W": ["l", "nu"]}}, "event": ["tl"] * 3}, "3 neutrinos"),
        ({"bins": 4}, "bins is 4, but must be a list of the smallest number"),
        ({"bins": [5, 4]}, "increasing order"),
    ],
)
def test_what_cannot_be_solved_or_binned_is_refused(change, said):
    with pytest.raises(TopologyError, match=said):
        parse_topology({**LEPTONIC, **change})


def test_bins_of_results():
    topology = parse_topology({**LEPTONIC, "bins": [2, 3, 5]})
    assert bin_names(topology) == ("2", "3-4", "5+")
    assert bin_index(topology, np.array([1, 2, 3, 4, 5, 9])).tolist() == [-1, 0, 1, 1, 2, 2]
    assert bin_names(parse_topology(topology.to_dict())) == bin_names(topology)
    assert {name: bin_names(load_topology(name)) for name in builtin_topologies()} == {
        "hh4b": ("4", "5", "6+"),
        "hh4b_boosted": ("0-3", "4", "5", "6+"),
        "ttbar_allhad": ("6", "7", "8+"),
        "ttbar_allhad_boosted": ("0-3", "4-5", "6-7", "8+"),
        "ttbar_dilep": ("2", "3", "4+"),
        "ttbar_semilep": ("4", "5", "6", "7+"),
        "tth_allhad": ("8", "9", "10+"),
        "tth_semilep": ("6", "7", "8+"),
        "tttt_allhad": ("12", "13", "14+"),
        "wh": ("4", "5", "6+"),
        "ww_allhad": ("4", "5", "6+"),
        "zh": ("4", "5", "6+"),
    }


def test_a_selection_that_includes_another_accepts_all_its_events():
    rng = np.random.default_rng(0)

    def drawn():
        most = rng.choice([None, 3])
        cuts = Cuts(float(rng.choice([0, 20, 30])), float(rng.choice([2.0, np.inf])))
        return Selection({"jet": cuts}, {"jet": (int(rng.integers(0, 3)), most)}, int(rng.integers(0, 2)))

    def accepts(selection, pt, eta, tag):
        inside = (pt >= selection.cuts("jet").pt) & (np.abs(eta) <= selection.cuts("jet").abs_eta)
        fewest, most = selection.counts["jet"]
        return fewest <= inside.sum() <= (most or 99) and (inside & tag).sum() >= selection.btags

    events = [
        (rng.uniform(10, 40, n), rng.uniform(-3, 3, n), rng.random(n) < 0.5) for n in rng.integers(0, 6, 400)
    ]
    pairs = [(drawn(), drawn()) for _ in range(60)]
    for first, second in pairs:
        lost = any(accepts(second, *event) and not accepts(first, *event) for event in events)
        assert not (first.includes(second) and lost)
    assert 0 < sum(first.includes(second) for first, second in pairs) < len(pairs)
