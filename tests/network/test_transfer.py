"""Starting a network from the weights of another: what is taken over, and what begins anew."""

import pytest

torch = pytest.importorskip("torch")

from pairton.errors import TrainingError  # noqa: E402
from pairton.network import Network, NetworkConfig  # noqa: E402
from pairton.network.transfer import check_same_network, transferred  # noqa: E402
from pairton.topology import load_topology, parse_topology  # noqa: E402
from random_objects import TRIANGLES  # noqa: E402


def network(topology, **config):
    settings = TRIANGLES | {"patterns": True, "triplets": "potential"}
    return Network(load_topology(topology), NetworkConfig(**(settings | config)))


def part(state, start):
    return torch.cat([value.flatten() for name, value in state.items() if name.startswith(start)])


def filled(net):
    """The same network, each parameter another constant, so that each can be told from all others."""
    with torch.no_grad():
        for k, value in enumerate(net.parameters()):
            value.fill_(k + 1.0)
    return net


def test_the_same_tree_takes_everything():
    old = filled(network("ttbar_semilep"))
    found = transferred(old, network("ttbar_semilep"))
    assert all(torch.equal(found[name], value) for name, value in old.state_dict().items())


@pytest.mark.parametrize("triplets", ["object_sum", "hyper", "potential"])
def test_every_head_of_triplets_is_taken_whole(triplets):
    config = {"single_stream": True, "single_width": 8, "single_heads": 2, "pair_heads": 2, "patterns": False}
    old = filled(network("ttbar_allhad", triplets=triplets, **config))
    found = transferred(old, network("ttbar_allhad", triplets=triplets, **config))
    assert [name for name, value in old.state_dict().items() if not torch.equal(found[name], value)] == []


def test_outputs_follow_the_name_of_their_type():
    """Types are W, tl, t in l+jets and W, tl, H, t in ttH: the third output of one is the fourth of the other."""
    old, new = filled(network("ttbar_semilep")), network("tth_semilep")
    theirs, own = old.state_dict(), dict(new.state_dict())
    found = transferred(old, new)
    for name in ("blocks.", "embed.", "readout.", "heads.triplets."):
        assert torch.equal(part(found, name), part(theirs, name))
    for k, name in enumerate(new.topology.types):
        mine = part(found, f"heads.edges.layers.{k}.")
        if name == "H":
            assert torch.equal(mine, part(own, f"heads.edges.layers.{k}."))
        else:
            assert torch.equal(mine, part(theirs, f"heads.edges.layers.{old.topology.types.index(name)}."))
    assert torch.equal(part(found, "heads.patterns.layers.2."), part(own, "heads.patterns.layers.2."))
    new.load_state_dict(found)


def test_a_type_of_the_same_name_with_another_decay_begins_anew():
    other = parse_topology({"name": "other", "event": ["W", "W"], "particles": {"W": ["q", "q", "q"]}})
    old = filled(network("ttbar_allhad"))
    new = Network(other, old.config)
    own = dict(new.state_dict())
    found = transferred(old, new)
    assert torch.equal(part(found, "heads.edges."), part(own, "heads.edges."))
    assert torch.equal(part(found, "blocks."), part(old.state_dict(), "blocks."))


def test_objects_that_the_model_did_not_know_begin_anew():
    old, new = filled(network("ttbar_allhad")), network("ttbar_semilep")
    own = dict(new.state_dict())
    found = transferred(old, new)
    assert torch.equal(part(found, "embed.jet."), part(old.state_dict(), "embed.jet."))
    assert torch.equal(part(found, "embed.lepton."), part(own, "embed.lepton."))


def test_other_blocks_are_refused():
    with pytest.raises(TrainingError, match=r"mine is another network .* it has blocks 1 \(recipe: 2\)"):
        check_same_network(network("ttbar_allhad"), network("ttbar_allhad", blocks=2), "mine")
    check_same_network(network("ttbar_allhad"), network("tth_allhad", patterns=False), "mine")
