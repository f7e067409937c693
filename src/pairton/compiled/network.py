"""A pass of the symmetric network of triangle multiplication and transition, for events of one jet count.

Matrix products are numpy's, on blocks of rows that stay in cache; all else is in `kernels`. Scales of norms are
part of the matrices that follow, and matrices of gates change sign, so that numpy's exponential of a product is
what the kernels need.

Shapes as in `kernels`; T types, K types of three slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from pairton.compiled import kernels
from pairton.likelihood import Prediction, triplet_types
from pairton.topology import Topology

__all__ = ["CompiledNetwork"]

ROWS = 448  # of pairs in a block of events: buffers of a megabyte, products of full speed

F32 = npt.NDArray[np.float32]


class Layer(NamedTuple):
    """A block's matrices, (in, out); a network without gates has a bias in place of the last two kinds."""

    sides: F32  # (P, 2 P)
    out: F32  # (P, P)
    expand: F32  # (P, W), negative
    contract: F32  # (W, P)
    expand_bias: F32 | None  # (W,), negative
    gates: F32 | None  # (P, 3 P), negative
    expand_value: F32 | None  # (P, W)


class Potential(NamedTuple):
    """Of a type of three slots: out . silu(pair z_ij + side z_il + side z_jl + bias)."""

    pair: F32  # (F, F), negative
    side: F32  # (F, F), negative
    bias: F32  # (F,), of all three, negative
    out: F32  # (F,)


class _OneThread:
    """numpy's matrix products on one thread each, while any thread of ours is within."""

    def __init__(self) -> None:
        self.lock, self.within, self.limit = Lock(), 0, None  # type: Lock, int, Any
        self.controller = ThreadpoolController()

    def __enter__(self) -> None:
        with self.lock:
            if not self.within:
                self.limit = self.controller.limit(limits=1, user_api="blas")
                self.limit.__enter__()
            self.within += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.within -= 1
            if not self.within:
                self.limit.__exit__(*error)


@lru_cache(maxsize=1)
def one_blas_thread() -> _OneThread:
    return _OneThread()


@dataclass(frozen=True)
class Tables:
    """What depends on the number of jets alone."""

    low: npt.NDArray[np.intp]  # (M,)
    high: npt.NDArray[np.intp]
    square: npt.NDArray[np.intp]  # (N, N): position of each pair
    triplets: npt.NDArray[np.intp]  # (C, 3): pairs ij, il, jl with i < j and l another jet
    jets: tuple[npt.NDArray[np.intp], ...]  # i, j, l of them


@dataclass(frozen=True)
class Room:
    """Buffers of a block of events, used again for the next: memory that is warm, and nothing to allocate."""

    index: Tables
    n_jets: int
    single: F32
    jets: F32
    pair: F32
    z: F32
    normal: F32
    sides: F32
    gates: F32
    t: F32
    update: F32
    negative: F32
    opened: F32
    wide: F32
    active: F32
    first: F32
    second: F32
    totals: F32
    exponentials: F32


@lru_cache(maxsize=64)
def tables(n_jets: int) -> Tables:
    jets = np.arange(n_jets)
    low, high = np.minimum(jets[:, None], jets), np.maximum(jets[:, None], jets)
    square = high * (high + 1) // 2 + low
    second, first = np.tril_indices(n_jets)  # ordered by the larger jet
    i, j, k = (axis.ravel() for axis in np.indices((n_jets,) * 3))
    apart = (i < j) & (k != i) & (k != j)
    i, j, k = i[apart], j[apart], k[apart]
    triplets = np.stack([square[i, j], square[i, k], square[j, k]], axis=1)
    return Tables(first, second, square, np.ascontiguousarray(triplets), (i, j, k))


class CompiledNetwork:
    """Weights in the form the pass wants; may be used by several threads at once."""

    def __init__(self, weights: Mapping[str, F32], config: Mapping[str, Any], topology: Topology) -> None:
        self.topology, self.config = topology, config
        get = {name: np.asarray(array, dtype=np.float32) for name, array in weights.items()}
        jets_to_pairs = get["jets_to_pairs.weight"].T
        self.jets = _matrix(get["embed_jets.weight"].T @ jets_to_pairs)
        self.pairs = _matrix(get["embed_pairs.weight"].T)
        self.bias = get["embed_pairs.bias"] + 2 * (get["embed_jets.bias"] @ jets_to_pairs)
        count = len(topology.types)
        self.tokens = [get[f"embed_tokens.tables.{k}.weight"] for k in range(count)] if config["tokens"] else None
        self.layers = [_layer(get, f"blocks.{k}.") for k in range(int(config["blocks"]))]
        scale = get["readout.pair.0.scale"][:, None]
        self.readout = _matrix(-scale * get["readout.pair.1.weight"].T)
        self.readout_bias = -get["readout.pair.1.bias"]
        self.kernels = kernels.kernels(*self.readout.shape)
        heads = [f"edge_head.layers.{k}." for k in range(count)]
        self.edges = [_matrix(-get[head + "0.weight"].T) for head in heads]
        self.edges_bias = [-get[head + "0.bias"] for head in heads]
        self.edges_out = [np.ascontiguousarray(get[head + "2.weight"][0]) for head in heads]
        self.edges_out_bias = [get[head + "2.bias"][0] for head in heads]
        kinds = list(triplet_types(topology).values()) if config["triplets"] == "potential" else []
        self.potentials = [_potential(get, k, same) for k, same in enumerate(kinds)]

    def predict(
        self, jets: F32, jet_mask: npt.NDArray[np.bool_], tokens: npt.NDArray[np.uint8] | None
    ) -> Prediction:
        """The same for padded jets, wherever `jet_mask` (B, N) says they are: zero elsewhere."""
        if self.tokens is None:
            tokens = None
        if jet_mask.all():
            with one_blas_thread():
                return self(jets, tokens)
        batch, n_jets = jet_mask.shape
        edges = np.zeros((batch, len(self.topology.types), n_jets, n_jets), dtype=np.float32)
        triplets = np.zeros((batch, len(self.potentials), *(n_jets,) * 3), dtype=np.float32)
        counts = jet_mask.sum(axis=1)
        for count in np.unique(counts[counts > 0]):
            (rows,) = np.nonzero(counts == count)
            there = np.nonzero(jet_mask[rows])[1].reshape(-1, count)  # (B, n): places of the jets
            event, i, j = rows[:, None, None], there[:, :, None], there[:, None, :]
            shown = None if tokens is None else np.moveaxis(tokens[event, :, i, j], 3, 1)
            found = self.predict(jets[rows[:, None], there], np.ones(there.shape, dtype=bool), shown)
            edges[event, :, i, j] = np.moveaxis(found.edges, 1, 3)
            if found.triplets is not None:
                triplets[event[..., None], :, i[..., None], j[..., None], there[:, None, None, :]] = np.moveaxis(
                    found.triplets, 1, 4
                )
        return Prediction(edges, triplets if self.potentials else None)

    def __call__(self, jets: F32, tokens: npt.NDArray[np.uint8] | None) -> Prediction:
        """jets (B, N, 5), none of them padding; tokens (B, T, N, N) for a network that takes them."""
        batch, n_jets = jets.shape[:2]
        edges = np.empty((batch, len(self.topology.types), n_jets, n_jets), dtype=np.float32)
        triplets = None
        if self.potentials:
            triplets = np.zeros((batch, len(self.potentials), *(n_jets,) * 3), dtype=np.float32)
        size = min(batch, max(1, ROWS // (n_jets * (n_jets + 1) // 2)))
        room = self._room(size, n_jets)
        with np.errstate(over="ignore"):  # exp(-x) of a closed gate: 1 / (1 + inf) is the zero it should be
            for start in range(0, batch, size):
                part = slice(start, start + size)
                if len(jets[part]) < size:
                    room = self._room(len(jets[part]), n_jets)
                self._embed(jets[part], None if tokens is None else tokens[part], room)
                self._trunk(room)
                self._heads(room, edges[part], None if triplets is None else triplets[part])
        return Prediction(edges, triplets)

    def _room(self, batch: int, n_jets: int) -> Room:
        index = tables(n_jets)
        rows, width, hidden = batch * len(index.low), self.pairs.shape[1], self.layers[0].contract.shape[0]
        head, triplets = self.readout.shape[1], batch * len(index.triplets) if self.potentials else 0
        shapes = {
            "single": (batch * n_jets, len(self.jets)),
            "jets": (batch * n_jets, width),
            "pair": (rows, len(self.pairs)),
            "z": (rows, width),
            "normal": (rows, width),
            "sides": (rows, 2 * width),
            "gates": (rows, 3 * width),
            "t": (rows, width),
            "update": (rows, width),
            "negative": (rows, hidden),
            "opened": (rows, hidden),
            "wide": (rows, hidden),
            "active": (rows, head),
            "first": (rows, head),
            "second": (rows, head),
            "totals": (triplets, head),
            "exponentials": (triplets, head),
        }
        return Room(index, n_jets, **{name: np.empty(shape, np.float32) for name, shape in shapes.items()})

    def _embed(self, jets: F32, tokens: npt.NDArray[np.uint8] | None, room: Room) -> None:
        """Pairs z, and the same normalised."""
        kernels.features(np.ascontiguousarray(jets), room.single, room.pair)
        np.matmul(room.pair, self.pairs, out=room.z)
        if self.tokens is not None:
            assert tokens is not None
            packed = tokens[:, :, room.index.low, room.index.high].astype(np.intp)  # (B, T, M)
            parts = [table[packed[:, k].ravel()] for k, table in enumerate(self.tokens)]
            room.z[:] += np.concatenate(parts, axis=1)
        np.matmul(room.single, self.jets, out=room.jets)
        self.kernels.embed(room.z, room.jets, self.bias, room.n_jets, room.normal)

    def _trunk(self, room: Room) -> None:
        """Pairs through all blocks, normalised at the end."""
        run, normal = self.kernels, room.normal
        for layer in self.layers:
            np.matmul(normal, layer.sides, out=room.sides)
            if layer.gates is not None:
                np.matmul(normal, layer.gates, out=room.gates)
                np.exp(room.gates, out=room.gates)
                run.open_sides(room.sides, room.gates)
            run.triangle(room.sides, room.n_jets, room.t)
            np.matmul(room.t, layer.out, out=room.update)
            if layer.gates is not None:
                run.add_gated_and_normalise(room.z, room.update, room.gates, normal)
            else:
                run.add_and_normalise(room.z, room.update, normal)
            np.matmul(normal, layer.expand, out=room.negative)
            if layer.expand_bias is not None:
                np.add(room.negative, layer.expand_bias, out=room.negative)
            np.exp(room.negative, out=room.opened)
            flat = room.negative.reshape(-1), room.opened.reshape(-1), room.wide.reshape(-1)
            if layer.expand_value is not None:
                np.matmul(normal, layer.expand_value, out=room.wide)
                kernels.gate(*flat)
            else:
                kernels.silu(*flat)
            np.matmul(room.wide, layer.contract, out=room.update)
            run.add_and_normalise(room.z, room.update, normal)

    def _heads(self, room: Room, edges: F32, triplets: F32 | None) -> None:
        index, run = room.index, self.kernels
        np.matmul(room.normal, self.readout, out=room.first)
        np.add(room.first, self.readout_bias, out=room.first)
        np.exp(room.first, out=room.second)
        kernels.silu(room.first.reshape(-1), room.second.reshape(-1), room.active.reshape(-1))
        score = np.empty(len(room.z), dtype=np.float32)
        for k, matrix in enumerate(self.edges):
            np.matmul(room.active, matrix, out=room.first)
            np.add(room.first, self.edges_bias[k], out=room.first)
            np.exp(room.first, out=room.second)
            run.sum_of_silu(room.first, room.second, self.edges_out[k], score)
            score += self.edges_out_bias[k]
            edges[:, k] = score.reshape(len(edges), -1)[:, index.square]
        if triplets is None:
            return
        i, j, other = index.jets
        score = np.empty(len(room.totals), dtype=np.float32)
        for k, potential in enumerate(self.potentials):
            np.matmul(room.active, potential.pair, out=room.first)
            np.add(room.first, potential.bias, out=room.first)
            np.matmul(room.active, potential.side, out=room.second)
            run.three_sides(room.first, room.second, index.triplets, len(index.low), room.totals)
            np.exp(room.totals, out=room.exponentials)
            run.sum_of_silu(room.totals, room.exponentials, potential.out, score)
            triplets[:, k, i, j, other] = triplets[:, k, j, i, other] = score.reshape(len(edges), -1)


def _matrix(weight: npt.NDArray[Any]) -> F32:
    return np.ascontiguousarray(weight, dtype=np.float32)


def _layer(get: Mapping[str, F32], prefix: str) -> Layer:
    sides = get[prefix + "multiply.norm.scale"][:, None] * get[prefix + "multiply.sides_and_gate.weight"].T
    out = get[prefix + "multiply.norm_out.scale"][:, None] * get[prefix + "multiply.out.weight"].T
    expand = get[prefix + "pair_transition.norm.scale"][:, None] * get[prefix + "pair_transition.expand.weight"].T
    width, hidden = len(sides), get[prefix + "pair_transition.contract.weight"].shape[1]
    gated = expand.shape[1] > hidden
    return Layer(
        _matrix(sides[:, : 2 * width]),
        _matrix(out),
        _matrix(-expand[:, :hidden]),
        _matrix(get[prefix + "pair_transition.contract.weight"].T),
        None if gated else -get[prefix + "pair_transition.expand.bias"],
        _matrix(-sides[:, 2 * width :]) if gated else None,
        _matrix(expand[:, hidden:]) if gated else None,
    )


def _potential(get: Mapping[str, F32], k: int, symmetric: bool) -> Potential:
    weight, bias = -get[f"potential.sides.{k}.weight"].T, -get[f"potential.sides.{k}.bias"]
    hidden = len(weight)
    out = np.ascontiguousarray(get[f"potential.outs.{k}.weight"][0])
    if symmetric:
        return Potential(_matrix(weight), _matrix(weight), 3 * bias, out)
    pair, side = weight[:, :hidden], weight[:, hidden:]
    return Potential(_matrix(pair), _matrix(side), bias[:hidden] + 2 * bias[hidden:], out)
