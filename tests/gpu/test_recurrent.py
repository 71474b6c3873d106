"""Delta-rule layers and gated attention on CUDA against NumPy, in recorded steps and others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pegainfer_core.backend import (
    AttentionWeights,
    DeltaShape,
    DeltaWeights,
    DType,
    MlpWeights,
    RopeTable,
    StateLayout,
    StepMetadata,
)
from pegainfer_core.backend.cuda.arrays import address
from pegainfer_core.weights import RopeConfig
from tests.gpu.pair import (
    MAX_ROWS,
    MAX_TOKENS,
    Both,
    Pair,
    Split,
    Step,
    assert_close,
    attention_shape,
    kv_layout,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch
    from pegainfer_core.backend.cuda import CudaBackend

    Rows = Sequence[tuple[int, int, int]]
    Saves = Sequence[tuple[int, int, int]]

pytestmark = pytest.mark.gpu

LAYERS, LAYER = 3, 1
SLOTS = 100
#: Key heads, value heads, key channels, value channels, taps.
SHAPES = {
    "4B": (16, 32, 128, 128, 4),
    "27B": (16, 48, 128, 128, 4),
    "0.8B": (16, 16, 128, 128, 4),
    "odd": (2, 6, 20, 24, 3),
    "few channels": (1, 2, 16, 16, 2),
}
#: (tokens before, tokens, slot), decoding rows first.
PROMPTS: Rows = ((0, 63, 0), (0, 64, 1), (0, 65, 2), (0, 1, 3), (0, 2, 4), (0, 300, 5))
MIXED: Rows = ((63, 1, 0), (64, 1, 1), (1, 1, 3), (65, 128, 2), (2, 3, 4), (300, 17, 5), (0, 9, 6))
RESUMED: Rows = ((64, 1, 0), (3, 1, -1), (193, 63, 2), (5, 65, 4), (317, 200, 5), (0, 5, 1))


@pytest.fixture(scope="module")
def told() -> CudaBackend:
    """A backend that knows of recurrent layers; its own, for its steps carry their work."""
    from pegainfer_core.backend.cuda import CudaBackend

    return CudaBackend()


@pytest.fixture(params=(DType.FLOAT32, DType.BFLOAT16), ids=lambda dtype: dtype.value)
def pair(request: pytest.FixtureRequest, told: CudaBackend) -> Pair:
    seed = int(np.random.default_rng().integers(1 << 31))
    print("seed", seed)
    return Pair(told, request.param, seed)


class Layer:
    """A delta-rule layer, and states of both backends that hold the same."""

    def __init__(self, pair: Pair, name: str) -> None:
        key_heads, value_heads, key_dim, value_dim, taps = SHAPES[name]
        self.pair = pair
        self.shape = DeltaShape(
            num_key_heads=key_heads,
            num_value_heads=value_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            conv_taps=taps,
            norm_eps=1e-6,
        )
        self.layout = StateLayout(
            num_layers=LAYERS,
            num_heads=value_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            conv_width=self.shape.conv_width,
            conv_history=taps - 1,
            dtype=pair.dtype,
        )
        self.states = [b.state_pool(self.layout, SLOTS) for b in (pair.numpy, pair.cuda)]
        for part in (self.states[1].memory, self.states[1].conv):
            num_bytes = int(np.prod(part.shape)) * part.dtype.itemsize
            pair.cuda.device.fill(address(part), 0xFF, num_bytes)
        pair.cuda.prepare_recurrent(self.shape, 64, self.layout)
        self.ops = [backend.recurrent_ops() for backend in (pair.numpy, pair.cuda)]
        self.weights = self._weights(value_heads, value_dim, taps)

    def metadata(self, rows: Rows, saves: Saves = ()) -> StepMetadata:
        """Of a step; saves are (row, tokens, slot)."""
        metadata = StepMetadata(MAX_TOKENS, MAX_ROWS, 8192, 16, max_saves=64)
        fill(metadata, rows, saves)
        return metadata

    def projected(self) -> Both:
        return self.pair.random_tensor(MAX_TOKENS, self.shape.projected_width)

    def gated(self) -> Both:
        return self.pair.poison(MAX_TOKENS, self.shape.value_width)

    def run(self, rows: Rows, saves: Saves = ()) -> None:
        """A step on both; outputs and slots are close afterwards."""
        metadata, projected, gated = self.metadata(rows, saves), self.projected(), self.gated()
        for index, backend in enumerate((self.pair.numpy, self.pair.cuda)):
            self.work(index, backend.upload(metadata), projected, gated)
        self.pair.check(gated, metadata.num_tokens)
        self.check_slots({slot for _, _, slot in (*rows, *saves) if slot >= 0})

    def work(self, index: int, batch: Batch, projected: Both, gated: Both) -> None:
        x, out = ((each.numpy, each.cuda)[index] for each in (projected, gated))
        self.ops[index].gated_delta(
            batch, x, self.weights[index], self.shape, self.states[index], LAYER, out,
            self.pair.workspaces[index],
        )  # fmt: skip

    def check_slots(self, slots: set[int]) -> None:
        for part in ("memory", "conv"):
            expected, found = (self._slots(index, part) for index in (0, 1))
            for slot in slots:
                assert_close(found[slot], expected[slot], self.pair.dtype)

    def touched(self) -> set[int]:
        """Slots that anything of was written on the device."""
        found = [~np.isnan(self._slots(1, part)) for part in ("memory", "conv")]
        return {i for i in range(SLOTS) if any(part[i].any() for part in found)}

    def _slots(self, index: int, part: str) -> NDArray[np.float32]:
        backend = (self.pair.numpy, self.pair.cuda)[index]
        return backend.to_host(getattr(self.states[index], part), SLOTS)[:, LAYER]

    def _weights(self, heads: int, width: int, taps: int) -> tuple[DeltaWeights, DeltaWeights]:
        pair = self.pair
        rates = -np.exp(pair.random.standard_normal(heads) - 4).astype(np.float32)
        biases = pair.random.standard_normal(heads).astype(np.float32)
        parts = {
            "input_norm": pair.random_tensor(1),
            "projection": pair.random_tensor(1, 1),
            "conv": pair.random_tensor(taps, self.shape.conv_width),
            "decay_rate": pair.tensor(rates, DType.FLOAT32),
            "decay_bias": pair.tensor(biases, DType.FLOAT32),
            "norm": pair.random_tensor(width, scale=0.2, center=1),
            "out": pair.random_tensor(1, 1),
        }
        return (
            DeltaWeights(**{key: both.numpy for key, both in parts.items()}),
            DeltaWeights(**{key: both.cuda for key, both in parts.items()}),
        )


def fill(metadata: StepMetadata, rows: Rows, saves: Saves = ()) -> None:
    for start, count, slot in rows:
        pages = [1] * -(-(start + count) // 16)
        metadata.add_row([0] * count, start, pages, samples=True, slot=slot)
    for save in saves:
        metadata.add_save(*save)
    metadata.finish(next((i for i, row in enumerate(rows) if row[1] > 1), len(rows)))


@pytest.mark.parametrize("name", SHAPES)
def test_rows_go_on_from_their_slots(pair: Pair, name: str) -> None:
    layer = Layer(pair, name)
    for rows in (PROMPTS, MIXED, RESUMED):
        layer.run(rows)
    assert layer.touched() == {0, 1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("name", ["4B", "odd"])
def test_copies_are_left_where_they_are_asked_for(pair: Pair, name: str) -> None:
    layer = Layer(pair, name)
    layer.run(
        ((0, 100, 0), (0, 3, 1)), ((0, 1, 10), (0, 2, 11), (0, 66, 12), (0, 66, 13), (1, 3, 14))
    )
    layer.run(((100, 1, 0), (3, 70, 1)), ((0, 1, 15), (0, 1, 16), (1, 13, 17)))
    layer.run(((16, 2, 17), (2, 1, 11))[::-1])
    sources, targets = [10, 17], [20, 21]
    for backend, states in zip((pair.numpy, pair.cuda), layer.states, strict=True):
        backend.copy_states(states, sources, targets)
    layer.check_slots({20, 21})


@pytest.mark.parametrize("name", ["4B", "odd"])
def test_what_is_not_a_number_stays_so_and_in_its_row(pair: Pair, name: str) -> None:
    """Nor does what it leaves behind reach a later row, whose pieces are not full."""
    layer = Layer(pair, name)
    bad = pair.values(MAX_TOKENS, layer.shape.projected_width)
    # A value of the last head, in the second piece of the first row.
    bad[70, layer.shape.conv_width - 1] = np.nan
    tokens, gated = pair.tensor(bad), layer.gated()
    rows = ((0, 300, 0), (0, 70, 1))
    layer.work(1, pair.cuda.upload(layer.metadata(rows)), tokens, gated)
    found = np.isnan(pair.cuda.to_host(gated.cuda, 370))
    # Sums over a piece hold it, times zero, for tokens before it.
    assert not found[:64].any() and found[70:300, -1].all() and not found[300:].any()
    memory = np.isnan(layer._slots(1, "memory"))
    assert memory[0].any() and not memory[1].any()
    for count in (1, 33, 65):
        layer.run(((0, count, 2), (0, count + 1, 0)))


def test_primitives(pair: Pair) -> None:
    """The composition gives what the fused op gives."""
    layer = Layer(pair, "odd")
    metadata, projected = layer.metadata(MIXED), layer.projected()
    mixed = pair.poison(MAX_TOKENS, layer.shape.conv_width)
    delta = pair.poison(MAX_TOKENS, layer.shape.value_width)
    gated, count = layer.gated(), metadata.num_tokens
    for slot in range(6):  # what rows go on from must be there
        layer.run(((0, 2, slot),))
    for index, backend in enumerate((pair.numpy, pair.cuda)):
        batch, ops = backend.upload(metadata), layer.ops[index]
        x, m, d, g = ((e.numpy, e.cuda)[index] for e in (projected, mixed, delta, gated))
        weights, states = layer.weights[index], layer.states[index]
        ops.causal_conv(batch, x, weights.conv, layer.shape, states, LAYER, m)
        ops.delta_rule(batch, m, x, weights, layer.shape, states, LAYER, d)
        ops.gated_norm(count, d, x, weights.norm, layer.shape, g)
    for tensors in (mixed, delta, gated):
        pair.check(tensors, count)


@pytest.mark.parametrize("num_rows", [1, 3, 8, 21, 60])
def test_recorded_decoding_moves_the_slots_of_each_step(pair: Pair, num_rows: int) -> None:
    """Rows leave, slots change: the recording reads both from the step; padding touches none."""
    layer = Layer(pair, "4B")
    slots = pair.random.permutation(SLOTS)[: num_rows + 1].tolist()
    layer.run([(0, 3 + slot % 7, slot) for slot in slots[:32]])
    layer.run([(0, 3 + slot % 7, slot) for slot in slots[32:]] or [(0, 2, slots[0])])
    lengths = {slot: 3 + slot % 7 for slot in slots} | ({slots[0]: 2} if num_rows < 32 else {})
    metadata, projected, gated = layer.metadata(()), layer.projected(), layer.gated()

    def work(batch: Batch) -> None:
        layer.work(1, batch, projected, gated)

    used = set(slots)
    for step in range(5):
        rows = slots[step % 2 : num_rows + step % 2]
        saves = [(0, 1, next(s for s in range(SLOTS) if s not in used))] if step == 3 else []
        used |= {slot for _, _, slot in saves}
        metadata.clear()
        fill(metadata, [(lengths[slot], 1, slot) for slot in rows], saves)
        for slot in rows:
            lengths[slot] += 1
        layer.work(0, pair.numpy.upload(metadata), projected, gated)
        batch = pair.cuda.upload(metadata)
        assert batch.shape is not None
        pair.cuda.run(batch, work)
        pair.check(gated, num_rows)
        layer.check_slots(used)
        assert layer.touched() == used


def test_recorded_prompts(pair: Pair) -> None:
    layer = Layer(pair, "4B")
    metadata, projected, gated = layer.metadata(()), layer.projected(), layer.gated()

    def work(batch: Batch) -> None:
        layer.work(1, batch, projected, gated)

    steps: tuple[tuple[Rows, Saves], ...] = (
        (((0, 100, 0), (0, 20, 1)), ()),
        (((100, 28, 0), (20, 90, 1)), ((0, 12, 8), (1, 76, 9))),
        (((0, 128, 2),), ((0, 128, 7),)),
        (((128, 3, 2), (0, 3, 3), (128, 64, 0), (110, 50, 1)), ()),
    )
    for rows, saves in steps:
        metadata.clear()
        fill(metadata, rows, saves)
        layer.work(0, pair.numpy.upload(metadata), projected, gated)
        batch = pair.cuda.upload(metadata)
        assert batch.shape is not None
        pair.cuda.run(batch, work)
        pair.check(gated, metadata.num_tokens)
        layer.check_slots({slot for _, _, slot in (*rows, *saves)})


@pytest.mark.parametrize("heads", [(8, 2), (16, 4), (24, 4)])
@pytest.mark.parametrize("head_dim", [64, 256])
def test_gated_attention(pair: Pair, heads: tuple[int, int], head_dim: int) -> None:
    """Norms in float32, a quarter of each head turned, output gated; prompts, decoding, both."""
    shape = attention_shape(*heads, head_dim)
    pair.cuda.prepare_decoder(shape, 96, 96, kv_layout(shape, 16, pair.dtype))
    norms = {
        "input_norm": pair.random_tensor(96, scale=0.2, center=1),
        "head_norm": pair.random_tensor(sum(heads), head_dim, scale=0.2, center=1),
    }
    wide = {name: pair.tensor(pair.host(each, each.numpy.shape[0])[0].copy(), DType.FLOAT32)
            for name, each in norms.items()}  # fmt: skip
    rest = {
        "qkv": pair.random_tensor(shape.qkv_width + shape.query_width, 96, scale=0.1),
        "out": pair.random_tensor(1, 1),
    }
    weights = Split(
        AttentionWeights(**{key: both.numpy for key, both in (wide | rest).items()}),
        AttentionWeights(**{key: both.cuda for key, both in (wide | rest).items()}),
    )
    rope = partial_rope(pair, head_dim // 4)
    for rows in (((700, 1), (17, 1)), ((1, 1), (33, 1), (300, 300), (129, 17)), ((90, 90),)):
        step = Step(pair, kv_layout(shape, 16, pair.dtype), rows)
        hidden = pair.random_tensor(640, 96)
        qkv = pair.poison(640, shape.qkv_width + shape.query_width)
        attended, batch, kv = pair.poison(640, shape.query_width), step.batch(), step.kv()
        pair.both(
            "norm_qkv_rope_write", batch, hidden, weights, shape, rope, kv, 1, qkv,
            pair.workspace(),
        )  # fmt: skip
        for index, backend in enumerate((pair.numpy, pair.cuda)):
            x, out = ((e.numpy, e.cuda)[index] for e in (qkv, attended))
            given = ((batch.numpy, batch.cuda)[index], (kv.numpy, kv.cuda)[index])
            backend.recurrent_ops().attend_gated(
                given[0], x, shape, given[1], 1, out, pair.workspaces[index]
            )
        pair.check(attended, step.num_tokens)
        step.check_pages()


@pytest.mark.parametrize("count", [1, 3, 13, 40])
def test_mlp_with_norms_in_float32(pair: Pair, count: int) -> None:
    shape = attention_shape(2, 1, 16)
    step = Step(pair, kv_layout(shape, 16, pair.dtype), ((300, count),))
    hidden = pair.random_tensor(64, 2560)
    norm = pair.tensor(pair.values(2560, scale=0.2, center=1), DType.FLOAT32)
    gate_up = pair.random_tensor(2 * 96, 2560, scale=2560**-0.5)
    down = pair.random_tensor(1, 1)
    weights = Split(
        MlpWeights(norm.numpy, gate_up.numpy, down.numpy, 1e-6),
        MlpWeights(norm.cuda, gate_up.cuda, down.cuda, 1e-6),
    )
    activated = pair.poison(64, 96)
    pair.both("norm_gate_up_act", step.batch(), hidden, weights, activated, pair.workspace())
    pair.check(activated, step.num_tokens)


def partial_rope(pair: Pair, rotary_dim: int) -> Split:
    rope = RopeConfig(rope_type="default", theta=1e7, rotary_dim=rotary_dim)
    tables: list[RopeTable] = [
        b.rope_table(rope, 2100, pair.dtype) for b in (pair.numpy, pair.cuda)
    ]
    return Split(*tables)
