"""Tops in NanoAOD with coffea: a processor that calls pairton on the jets of NanoEvents.

    python coffea_processor.py nano.root [more.root ...]

The model pickles as its path, so that processors travel light; its session opens once in each worker process.
"""

from __future__ import annotations

import sys
from typing import Any

import awkward as ak
import hist
import numpy as np
from coffea import processor
from coffea.nanoevents import NanoAODSchema

import pairton
from pairton.events.tags import load_table
from pairton.formats.nanoaod import FRACTIONS, tight_id


class TopMass(processor.ProcessorABC):
    """Masses of reconstructed tops and their probabilities, in events that have an answer."""

    def __init__(self, model: str = "default", tags: str = "pnet_2022") -> None:
        self.model = pairton.load_model(model, threads=1)  # workers share the cores, so one thread each
        self.table = load_table(tags)  # the score, its working points and their efficiencies

    def process(self, events: ak.Array) -> dict[str, Any]:
        jets = events.Jet
        # Version 15 has no jetId: the identification is recomputed from energy fractions.
        identity = {name: jets[name] for name in ("jetId", *FRACTIONS) if name in jets.fields}
        reco = pairton.reconstruct(
            pairton.make_jets(
                pt=jets.pt,
                eta=jets.eta,
                phi=jets.phi,
                mass=jets.mass,
                usable=tight_id(identity, jets.eta),  # the others stay, so that indices refer to events.Jet
                **{self.table.field: jets[self.table.field]},
            ),
            self.model,
            btag=self.table,
        )
        answered = (reco.assignment >= 0).all(axis=1)  # reco.status says why not
        tops = reco.t[answered]
        masses = hist.Hist.new.Reg(50, 0, 500, name="mass", label="top mass / GeV").Weight()
        masses.fill(ak.flatten(tops.mass), weight=ak.flatten(tops.probability))
        # Any column of the original jets, by index: here the score of the jet that is the b of the first top.
        b_jet = reco.assignment[answered][:, [reco.topology.slot_index("t1.b")]]
        scores = jets[answered][ak.from_regular(b_jet)][self.table.field]
        return {
            "events": len(events),
            "answered": int(answered.sum()),
            "b_score": float(ak.sum(scores)),
            "mass": masses,
        }

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        return accumulator


def near(jets: ak.Array, leptons: ak.Array, radius: float = 0.4) -> ak.Array:
    """Whether each jet is near a lepton that is used."""
    jet, lepton = ak.unzip(ak.cartesian([jets, leptons], nested=True))
    d_phi = (jet.phi - lepton.phi + np.pi) % (2 * np.pi) - np.pi
    return ak.any((np.hypot(jet.eta - lepton.eta, d_phi) < radius) & lepton.usable, axis=2)


class LeptonJets(processor.ProcessorABC):
    """Masses of the hadronic top and of the pair in l+jets events, also with another energy scale of jets."""

    def __init__(self, model: str = "ttbar_semilep", tags: str = "pnet_2022", shift: float = 0.01) -> None:
        self.model, self.table = pairton.load_model(model, threads=1), load_table(tags)
        self.scales = {"up": 1 + shift, "down": 1 - shift}  # in an analysis: your calibrations

    def process(self, events: ak.Array) -> dict[str, Any]:
        leptons = [
            pairton.make_objects(
                **{name: each[name] for name in ("pt", "eta", "phi", "mass", "charge")}, usable=passes
            )
            for each, passes in (
                (events.Electron, events.Electron.cutBased >= 4),
                (events.Muon, events.Muon.tightId & (events.Muon.pfRelIso04_all < 0.15)),
            )
        ]
        lepton = ak.concatenate(leptons, axis=1)  # an index counts electrons, then muons
        fields = {name: events.Jet[name] for name in ("pt", "eta", "phi", "mass", self.table.field)}
        fields["usable"] = tight_id({"jetId": events.Jet.jetId}, events.Jet.eta) & ~near(events.Jet, lepton)
        jet = pairton.make_jets(**fields)
        met = events.PuppiMET
        varied = {
            name: pairton.make_jets(**fields | {"pt": factor * fields["pt"], "mass": factor * fields["mass"]})
            for name, factor in self.scales.items()  # the missing energy follows
        }
        reco = pairton.reconstruct(
            {"jet": jet, "lepton": lepton, "met": ak.zip({"pt": met.pt, "phi": met.phi})},
            self.model,
            btag=self.table,
            variations=varied,
        )
        names = hist.axis.StrCategory(["nominal", *self.scales], name="variation")
        masses = {
            name: hist.Hist(names, hist.axis.Regular(50, *edges, name="mass"), storage=hist.storage.Weight())
            for name, edges in (("t", (0, 500)), ("tt", (200, 1200)))
        }
        for name, each in {"nominal": reco, **reco.variations}.items():
            good = each.status == pairton.Status.OK
            masses["t"].fill(name, each.t.mass[good][:, 0])
            masses["tt"].fill(name, each.tt.mass[good])
        return {"events": len(events), "selected": int((reco.status == pairton.Status.OK).sum()), **masses}

    def postprocess(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        return accumulator


def run(files: list[str], model: str = "default", executor: Any = None, chunksize: int = 50_000) -> dict[str, Any]:
    """Process some files on this machine."""
    runner = processor.Runner(
        executor=executor or processor.IterativeExecutor(status=False), schema=NanoAODSchema, chunksize=chunksize
    )
    found: dict[str, Any] = runner({"ttbar": {"files": dict.fromkeys(files, "Events")}}, TopMass(model))
    return found


if __name__ == "__main__":
    result = run(sys.argv[1:])
    print(f"{result['answered']} of {result['events']} events reconstructed")
    print(result["mass"])
