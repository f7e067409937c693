"""Models that know missing particles: answers, events with fewer objects than slots, priors."""

from dataclasses import replace

import awkward as ak
import numpy as np
import pytest

import pairton
from event_files import write_events
from pairton.cli import main
from pairton.decoding import patterns
from pairton.errors import ConfigError, ModelError
from pairton.evaluation.answers import read_assignments
from pairton.evaluation.metrics.probabilities import probabilities
from pairton.evaluation.scores import matches, same_hypothesis
from pairton.events import Events, Status
from pairton.events.head_specs import HeadSpec
from pairton.models import model as models
from pairton.models.storage import save_model
from pairton.reconstruction.provenance import result_metadata
from pairton.reconstruction.running import reconstruct, reconstruct_files

PATTERNS = ("t_t", "t_W", "t", "W_W", "W", "nothing")
NEEDS = np.array([6, 5, 3, 4, 2, 0])
NOTHING = (0, 0, 0, 0, 0, 60)  # more than any hypothesis gains


def without(events, slots):
    """The same events without the jets of some slots, which are then labelled as missing."""
    if not len(slots):
        return events
    kept = np.ones((len(events), ak.num(events.jets)[0]), dtype=bool)
    for slot in slots:
        kept[np.arange(len(events)), events.truth[:, slot]] = False
    fewer = events.keep({"jet": ak.from_regular(ak.Array(kept))})
    return fewer.replace(jets=ak.without_field(fewer.jets, "index"))


@pytest.fixture
def five(decays):
    """Five jets: a top and a W, whose b is missing."""
    return without(decays(60, seed=3, extra=0), [5])


def test_five_jets_hold_a_top_and_a_w(five, missing_model, mass_model):
    reco = reconstruct(five, missing_model)
    assert (reco.status == Status.INCOMPLETE).all()
    assert Status.INCOMPLETE.label == "incomplete"
    assert reco.exact.all()
    chances = np.stack([reco.outputs[f"pattern_{name}"] for name in PATTERNS], axis=1)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    assert (chances[:, 0] == 0).all()
    assert (reco.outputs["complete_probability"] == 0).all()
    assert np.isnan(reco.outputs["event_probability_if_complete"]).all()
    right = same_hypothesis(five.topology, five.truth, reco.assignment)
    assert right.mean() > 0.6
    assert reco.event_probability.mean() == pytest.approx(right.mean(), abs=0.25)
    found = reco.assignment >= 0
    one = found.sum(axis=1) == 5  # t and W
    assert one.mean() > 0.6
    assert found[one][:, :3].all()  # the top comes first
    np.testing.assert_array_equal(np.isnan(reco.t.mass), np.isnan(reco.t.probability))
    np.testing.assert_array_equal(ak.num(reco.t.objects, axis=2)[one], [[3, 0]] * one.sum())
    # as before for a model of complete events
    alone = reconstruct(five, mass_model)
    assert (alone.status == Status.TOO_FEW_OBJECTS).all()
    assert (alone.assignment == -1).all()


def test_every_number_of_jets_has_an_answer_but_none(decays, missing_model):
    events = decays(1, extra=0)
    few = Events.concatenate([without(events, range(6 - n)) for n in range(7)])
    reco = reconstruct(few, missing_model)
    assert [Status(s).label for s in reco.status[:6]] == ["too_few_objects", *["incomplete"] * 5]
    assert (reco.assignment[6] >= 0).all()
    assert np.isnan(reco.event_probability).tolist() == [True] + [False] * 6
    for n in range(1, 7):
        chance = np.array([reco.outputs[f"pattern_{name}"][n] for name in PATTERNS])
        np.testing.assert_array_equal(chance > 0, n >= NEEDS)
    assert np.isnan(reco.outputs["pattern_nothing"][0])
    assert reco.outputs["pattern_nothing"][1] == reco.event_probability[1] == 1  # one jet can be no particle
    assert (reco.assignment[1] == -1).all()


def test_other_statuses_win_or_lose_against_incomplete(five, missing_model):
    jets = five.jets
    bad = ak.with_field(jets, ak.where(ak.local_index(jets) == 0, np.nan, jets.pt), "pt")
    assert (reconstruct(five.replace(jets=bad), missing_model).status == Status.BAD_OBJECT).all()
    scores = five.replace(jets=ak.with_field(jets, ak.where(jets.btag > 0.5, 0.7, 0.3), "btag"))
    assert (reconstruct(scores, missing_model).status == Status.INCOMPLETE).all()  # not outside_domain


def test_four_answers(decays, missing_model_type):
    """Events in which anything may be missing: each answer is best at what it is for."""
    whole = decays(150, seed=4, extra=1)
    events = Events.concatenate([whole[:50], without(whole[50:100], [2]), without(whole[100:], [0, 3])])
    model = missing_model_type(strength=0.15)  # unsure
    reco = {
        (answer, allow): reconstruct(events, model, answer=answer, allow_absent=allow)
        for answer in ("event", "particles")
        for allow in (False, True)
    }
    chance = {key: found.event_probability for key, found in reco.items()}
    enough = reco["event", False].used["jet"] >= 6
    worth = {}
    for key, found in reco.items():
        cost = 0.5 * (key[1] | ~enough)  # of a particle, where one may be left out
        worth[key] = np.nansum(found.particle_probability - cost[:, None], axis=1)
    for allow in (False, True):
        assert (chance["event", allow] >= chance["particles", allow] - 1e-9).all()
        assert (worth["particles", allow] >= worth["event", allow] - 1e-9).all()
        assert (worth["particles", allow] > worth["event", allow] + 1e-3).any()  # the answers do differ
        assert (chance["event", True] >= chance["event", allow] - 1e-9).all()
    for answer in ("event", "particles"):
        assert ((reco[answer, False].assignment >= 0).all(axis=1) == enough).all()
    left = reco["particles", True].particle_probability
    assert (left[np.isfinite(left)] >= 0.5).all()
    absent = [np.isnan(reco[key].particle_probability).mean() for key in (("particles", True), ("event", True))]
    assert min(absent) > 0.05
    conditional = {key: found.outputs["event_probability_if_complete"] for key, found in reco.items()}
    part = (reco["event", True].assignment < 0).any(axis=1) & enough
    assert part.any()
    assert (conditional["event", True][part] == 0).all()  # a particle less is wrong if the event is complete
    for found in reco.values():  # what is there does not depend on the answer
        for name in PATTERNS:
            np.testing.assert_array_equal(
                found.outputs[f"pattern_{name}"], reco["event", False].outputs[f"pattern_{name}"]
            )


def test_with_nothing_to_find_the_answer_says_so(decays, missing_model_type):
    events, model = decays(8, extra=1), missing_model_type(terms=NOTHING)
    for answer in ("event", "particles"):
        reco = reconstruct(events, model, answer=answer, allow_absent=True)
        assert (reco.status != Status.BAD_OUTPUT).all()
        assert (reco.assignment == -1).all()
        assert (reco.event_probability > 0.99).all()
        np.testing.assert_allclose(reco.event_probability, reco.outputs["pattern_nothing"], rtol=1e-6)
        assert np.isnan(reco.particle_probability).all()
        assert ak.all(np.isnan(reco.t.mass))
        assert ak.all(ak.num(reco.W.objects, axis=2) == 0)
        assert reco.object("t1.b").tolist() == [None] * 8
    complete = reconstruct(events, model)
    assert (complete.assignment >= 0).all()
    assert (complete.event_probability < 0.01).all()


def test_a_bad_output_is_not_nothing(decays, missing_model_type):
    class Broken(missing_model_type):
        def predict(self, nodes, tokens):
            outputs = super().predict(nodes, tokens)
            outputs["patterns"][0] = np.nan
            return outputs

    reco = reconstruct(decays(4, extra=0), Broken(), allow_absent=True)
    assert [Status(s).label for s in reco.status].count("bad_output") == 1
    assert np.isnan(reco.event_probability).sum() == 1


def test_priors_scale_the_odds(decays, missing_model_type):
    events, model = decays(20, extra=1), missing_model_type(terms=(0, 1, 2, 1, 0, 9))
    before = reconstruct(events, model)
    after = reconstruct(events, model, prior={"nothing": 1e4})

    def odds(reco):
        return reco.outputs["pattern_nothing"].astype(float) / reco.outputs["complete_probability"]

    np.testing.assert_allclose(odds(after), 1e4 * odds(before), rtol=1e-5)
    np.testing.assert_array_equal(after.assignment, before.assignment)
    np.testing.assert_allclose(
        after.outputs["event_probability_if_complete"], before.outputs["event_probability_if_complete"], rtol=1e-5
    )
    sure = reconstruct(events, model, prior={"incomplete": 0})
    np.testing.assert_allclose(sure.event_probability, before.outputs["event_probability_if_complete"], rtol=1e-5)
    assert (sure.outputs["complete_probability"] == 1).all()
    few = without(decays(3, extra=0), [2])
    assert (reconstruct(few, model, prior={"incomplete": 0}).status == Status.TOO_FEW_OBJECTS).all()


@pytest.mark.parametrize("suffix", [".parquet", ".root", ".h5"])
def test_partly_empty_answers_are_written_and_read_back(five, missing_model, tmp_path, suffix):
    write_events(five, tmp_path / "in.h5")
    settings = {"answer": "particles", "allow_absent": True, "prior": {"nothing": 2.0}}
    out = tmp_path / f"out{suffix}"
    summary = reconstruct_files(str(tmp_path / "in.h5"), out, missing_model, **settings)
    assert summary.status["incomplete"] == 60
    said = result_metadata(out)
    assert (said["answer"], said["allow_absent"], said["prior"]) == ("particles", True, {"nothing": 2.0})
    assert said["status"]["incomplete"] == 60
    reco = reconstruct(five, missing_model, answer="particles", allow_absent=True, prior={"nothing": 2})
    back = read_assignments(out, five.topology)
    np.testing.assert_array_equal(back.assignment, reco.index)
    np.testing.assert_allclose(back.event_probability, reco.event_probability, rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(back.particle_probability), np.isnan(reco.particle_probability))
    scored = pairton.evaluate(
        five, missing_model, assignments=[str(out)], answer="particles", allow_absent=True, prior={"nothing": 2}
    )
    one, other = (scored.efficiency(method) for method in scored.methods)
    assert one == other
    assert one["t"]["inclusive"].total == 60
    about = scored.methods[0].about
    assert (about["answer"], about["prior"]) == ("particles", {"nothing": 2})


def test_evaluation_knows_answers_of_fewer_particles(decays, missing_model, missing_model_type):
    whole = decays(80, seed=6, extra=0)
    events = Events.concatenate([whole[:40], without(whole[40:], [5])])
    result = pairton.evaluate(events, missing_model, allow_absent=True)
    (method,) = result.methods
    assert method.unanswered == 0
    counted = probabilities(result, method)["event"]
    reco = reconstruct(events, missing_model, allow_absent=True)
    right = same_hypothesis(events.topology, events.truth, reco.assignment)
    np.testing.assert_array_equal(counted.right, right)
    assert right[40:].mean() > 0.5  # with a top and a W, all there is
    tops = matches(events.topology, events.truth, reco.assignment)[:, 0].sum()
    assert result.efficiency(method)["t"]["inclusive"].correct >= tops
    nothing = pairton.evaluate(events, missing_model_type(terms=NOTHING), allow_absent=True)
    assert nothing.methods[0].unanswered == 0
    assert nothing.efficiency(nothing.methods[0])["t"]["inclusive"].correct == 0


def test_the_bound_on_sums_truncates_and_is_counted(decays, missing_model, monkeypatch, tmp_path):
    monkeypatch.setattr(patterns, "MAX_SUMS", 2000)
    assert patterns.exact_limit(missing_model.topology) == 8
    events = decays(20, extra=4)
    write_events(events, tmp_path / "in.h5")
    summary = reconstruct_files(str(tmp_path / "in.h5"), tmp_path / "out.parquet", missing_model)
    assert summary.status["truncated"] == 20
    assert result_metadata(tmp_path / "out.parquet")["max_objects"] == 8
    reco = reconstruct(events, missing_model, allow_absent=True)
    assert (reco.used["jet"] == 8).all()
    softest = np.argsort(-np.asarray(ak.to_numpy(events.jets.pt)), axis=1)[:, 8:]
    assert not any(set(row[row >= 0]) & set(soft) for row, soft in zip(reco.assignment, softest, strict=True))


def test_more_objects_than_can_be_summed_over_are_said(decays, missing_model, monkeypatch, tmp_path, run):
    """The user is told if fewer objects are used than --max-objects asks for."""
    events = decays(20, extra=4)
    write_events(events, tmp_path / "in.h5")
    monkeypatch.setattr("pairton.models.model.load_model", lambda *_, **__: missing_model)
    for most, said in ((2000, True), (10**6, False)):
        monkeypatch.setattr(patterns, "MAX_SUMS", most)
        warned = run("reconstruct", tmp_path / "in.h5", "--max-objects", "11").err
        assert ("--max-objects 11 is more than" in warned) is said
        assert ("only the 8 of highest pT were used (20 truncated)" in warned) is said


def test_what_cannot_be_asked_of_a_model(five, mass_model, missing_model):
    for asked in ({"allow_absent": True}, {"prior": {"nothing": 2}}):
        with pytest.raises(ModelError, match=r"masses knows complete events only: .* network\.patterns"):
            reconstruct(five, mass_model, **asked)
    with pytest.raises(ConfigError, match="need the exact likelihood, not the decoding steps"):
        reconstruct(five, missing_model, decoding="steps", answer="particles")
    with pytest.raises(ConfigError, match=r"no pattern 'noting' .* did you mean 'nothing'"):
        reconstruct(five, missing_model, prior={"noting": 2})
    assert (reconstruct(five, mass_model, answer="particles").assignment == -1).all()


# -- with networks -----------------------------------------------------------------------------------------


def test_networks_answer_events_that_lack_a_kind_of_objects(small_network, tmp_path):
    """l+jets events with 0 to 6 jets and 0 or 1 lepton, by both engines."""
    from pairton.export import export_network

    topology = pairton.load_topology("ttbar_semilep")
    network, info = small_network(topology, tokens=False, patterns=True)
    info = replace(info, decoding="exact")
    save_model(tmp_path, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, info)
    export_network(network, info, tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    n_jets, n_leptons = np.divmod(np.arange(14), 2)

    def drawn(counts, **more):
        total = counts.sum()
        fields = {"pt": 30 + rng.exponential(50, total), "eta": rng.normal(0, 0.5, total)}
        fields |= {"phi": rng.uniform(-3, 3, total), "mass": np.full(total, 5.0)} | {
            k: f(total) for k, f in more.items()
        }
        return {name: ak.unflatten(values, counts) for name, values in fields.items()}

    objects = {
        "jet": pairton.make_jets(**drawn(n_jets, btag=lambda n: rng.integers(0, 2, n))),
        "lepton": pairton.make_objects(**drawn(n_leptons)),
        "met": pairton.make_met(pt=rng.exponential(40, 14), phi=rng.uniform(-3, 3, 14)),
    }
    events = Events(objects, topology)
    onnx, torch = (reconstruct(events, models.load_model(tmp_path, engine=name)) for name in ("onnx", "torch"))
    np.testing.assert_array_equal(onnx.assignment, torch.assignment)
    np.testing.assert_allclose(onnx.event_probability, torch.event_probability, rtol=1e-3)
    short = (n_jets < 4) | (n_leptons < 1)
    np.testing.assert_array_equal(np.isnan(onnx.event_probability), (n_jets + n_leptons) == 0)
    np.testing.assert_array_equal(onnx.status == Status.INCOMPLETE, short & (n_jets + n_leptons > 0))
    lacking = [name for name in onnx.outputs if name.startswith("pattern_") and "tl" in name]
    assert len(lacking) == 3
    assert all((onnx.outputs[name][2::2] == 0).all() for name in lacking)  # without a lepton


# -- on the command line -----------------------------------------------------------------------------------


@pytest.fixture
def call(monkeypatch, missing_model, five, decays, tmp_path, capsys):
    """The command line on five-jet events and complete ones: arguments in, what it says out."""
    events = Events.concatenate([five[:2], decays(2, extra=0)])
    write_events(events, tmp_path / "in.h5")

    def run(verb, *arguments, model=missing_model):
        monkeypatch.setattr(models, "load_model", lambda *_, **__: model)
        with pytest.raises(SystemExit) as stop:
            main([verb, str(tmp_path / "in.h5"), *map(str, arguments)])
        said = capsys.readouterr()
        return stop.value.code, said.out + said.err

    return run


def test_commands_take_the_question(call, missing_model_type, tmp_path):
    code, said = call("reconstruct")
    assert code == 0
    assert "incomplete" in said
    assert "4 events (1 ok, 1 outside_selection, 2 incomplete)" in said
    nothing = replace(missing_model_type(), terms=NOTHING)
    code, said = call("reconstruct", "--answer", "particles,absent", model=nothing)
    assert (code, said.count("absent")) == (0, 8)  # both tops of four events
    code, said = call("reconstruct", "-o", tmp_path / "o.parquet", "--prior", "nothing=5,t_W=0.5")
    assert code == 0
    assert result_metadata(tmp_path / "o.parquet")["prior"] == {"nothing": 5.0, "t_W": 0.5}
    code, said = call("evaluate", "--answer", "particles,absent", "--prior", "incomplete=0.5")
    assert (code, "4 events with truth, 2 complete" in said) == (0, True)
    code, said = call("display", "--event", 0, "-o", tmp_path / "e.html", "--answer", "absent", model=nothing)
    assert code == 0
    assert "event 0: nothing is present, with a probability of 1.000" in said
    for arguments, message in (
        (["--prior", "nothing=x"], "prior 'nothing=x': write it as in nothing=5"),
        (["--prior", "nothing=1,nothing=2"], "prior names 'nothing' twice (1.0 and 2)"),
        (["--prior", "nothing=-1"], "the prior of 'nothing' is -1.0"),
        (["--answer", "event,particles"], "answer 'event,particles': choose one of event and particles"),
        (["--answer", "tops"], "no answer 'tops': choose one of event, particles"),
    ):
        code, said = call("reconstruct", *arguments)
        assert code not in (0, None)
        assert message in said
        assert said.count("\n") == 1


def test_a_head_of_particles_says_nothing_of_absent_ones_and_costs_no_answer(five, decays, missing_model_type):
    """What a head says of an absent particle is NaN, which must not be taken for a broken network."""

    class WithHead(missing_model_type):
        @property
        def info(self):
            spec = HeadSpec("class", "t", ("t1_charge", "t2_charge"), 2)
            known = super().info
            return replace(
                known, heads={"charge": spec}, outputs={**known.outputs, "charge": ("class", "node", "node")}
            )

        def predict(self, nodes, tokens):
            outputs = super().predict(nodes, tokens)
            n = outputs["edges"].shape[-1]
            charge = np.zeros((len(nodes), 2, n, n), dtype=np.float32)
            charge[: self.broken] = np.inf
            return outputs | {"charge": charge}

        broken = 0

    plain, described = reconstruct(five, missing_model_type()), reconstruct(five, WithHead())
    assert (described.status == Status.INCOMPLETE).all()
    np.testing.assert_array_equal(described.assignment, plain.assignment)
    events = decays(30, seed=3)
    assert (reconstruct(events, WithHead(terms=NOTHING), allow_absent=True).status != Status.BAD_OUTPUT).all()
    model = WithHead()
    model.broken = 2
    assert (reconstruct(events, model).status == Status.BAD_OUTPUT).sum() == 2
