"""KV pages and paged attention: ragged batches over scattered pages against float64 maths."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pegainfer_core.backend import (
    AttentionShape,
    DType,
    KvLayout,
    KvPool,
    NumpyBackend,
    StepMetadata,
    Workspace,
)
from tests.backend import naive

BACKEND = NumpyBackend()
MAX_CONTEXT = 200
FloatArray = NDArray[np.float32]


@dataclass
class Context:
    """What one sequence has written so far, densely."""

    page_ids: list[int]
    keys: list[FloatArray] = field(default_factory=list)
    values: list[FloatArray] = field(default_factory=list)


class Rig:
    """A KV pool with two layers and sequences whose pages lie scattered in it."""

    def __init__(
        self, group: int, kv_heads: int, head_dim: int, page_tokens: int, dtype: DType, seed: int
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.shape = AttentionShape(
            num_heads=group * kv_heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            scale=head_dim**-0.5,
            norm_eps=1e-6,
        )
        self.layout = KvLayout(
            num_layers=2,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            page_tokens=page_tokens,
            dtype=dtype,
        )
        self.kv: KvPool = BACKEND.kv_pool(self.layout, 4 * self.layout.pages_for(MAX_CONTEXT))
        self.free = self.random.permutation(np.arange(1, self.kv.num_pages)).tolist()
        self.workspace: Workspace = BACKEND.workspace(64, MAX_CONTEXT)
        self.poison()

    def poison(self) -> None:
        """Whatever was not written in a test must not matter, not even when it is not a number."""
        stored = self.kv.pages.storage
        assert isinstance(stored, np.ndarray)
        stored.fill(0x7FC0 if stored.dtype == np.uint16 else np.nan)

    def sequence(self) -> Context:
        count = self.layout.pages_for(MAX_CONTEXT)
        return Context([self.free.pop() for _ in range(count)])

    def step(
        self, work: list[tuple[Context, int]], layer: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Write and attend for (sequence, number of tokens) rows; returns actual and expected."""
        total = sum(count for _, count in work)
        dtype = self.layout.dtype
        values = self.random.standard_normal((total, self.shape.qkv_width)).astype(np.float32)
        if dtype is DType.BFLOAT16:
            values = naive.bfloat16(values)
        qkv = BACKEND.adopt(np.ascontiguousarray(values), dtype)
        metadata = StepMetadata(64, len(work), 4 * len(self.free) + 400, self.layout.page_tokens)
        for context, count in work:
            metadata.add_row([1] * count, len(context.keys), context.page_ids, samples=False)
        metadata.finish(0)
        batch = BACKEND.upload(metadata)
        out = BACKEND.empty((64, self.shape.query_width), dtype)
        BACKEND.ops.kv_write(batch, qkv, self.shape, self.kv, layer)
        BACKEND.ops.attend(batch, qkv, self.shape, self.kv, layer, out, self.workspace)
        return BACKEND.to_host(out, total).copy(), self._expect(work, values)

    def _expect(self, work: list[tuple[Context, int]], values: FloatArray) -> FloatArray:
        heads = values.reshape(len(values), -1, self.shape.head_dim)
        queries, keys, vals = np.split(
            heads, [self.shape.num_heads, self.shape.num_heads + self.shape.num_kv_heads], axis=1
        )
        parts, first = [], 0
        for context, count in work:
            rows = slice(first, first + count)
            context.keys += list(keys[rows])
            context.values += list(vals[rows])
            parts.append(
                naive.attention(
                    queries[rows],
                    np.array(context.keys),
                    np.array(context.values),
                    self.shape.scale,
                )
            )
            first += count
        return np.concatenate(parts).reshape(len(values), -1).astype(np.float32)


def check(actual: FloatArray, expected: FloatArray, dtype: DType) -> None:
    if dtype is DType.BFLOAT16:
        np.testing.assert_allclose(actual, expected, rtol=2.0**-8, atol=2e-3)
        assert not (actual.view(np.uint32) & 0xFFFF).any()
    else:
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-6)


@settings(max_examples=60, deadline=None)
@given(
    group=st.sampled_from([1, 2, 4, 5, 8]),
    kv_heads=st.sampled_from([1, 2, 3]),
    head_dim=st.sampled_from([2, 16, 32]),
    page_tokens=st.sampled_from([16, 32, 64]),
    dtype=st.sampled_from([DType.FLOAT32, DType.BFLOAT16]),
    steps=st.lists(
        st.lists(st.sampled_from([0, 1, 1, 2, 7, 15, 16, 17]), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_ragged_batches_resume_anywhere(
    group: int,
    kv_heads: int,
    head_dim: int,
    page_tokens: int,
    dtype: DType,
    steps: list[list[int]],
    seed: int,
) -> None:
    rig = Rig(group, kv_heads, head_dim, page_tokens, dtype, seed)
    sequences = [rig.sequence() for _ in range(3)]
    for counts in steps:
        work = [pair for pair in zip(sequences, counts, strict=True) if pair[1]]
        if work:
            check(*rig.step(work), dtype)


def test_long_prefills_go_through_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_core.backend.numpy.attention._MAX_SCORES", 4 * 100 * 7)
    rig = Rig(2, 2, 16, 16, DType.FLOAT32, 0)
    sequence = rig.sequence()
    check(*rig.step([(sequence, 60)]), DType.FLOAT32)
    check(*rig.step([(sequence, 60)]), DType.FLOAT32)


def test_layers_do_not_share_their_pages() -> None:
    rig = Rig(1, 1, 4, 16, DType.FLOAT32, 0)
    first, second = rig.sequence(), rig.sequence()
    second.page_ids = first.page_ids
    check(*rig.step([(first, 20)], layer=0), DType.FLOAT32)
    check(*rig.step([(second, 20)], layer=1), DType.FLOAT32)
    check(*rig.step([(first, 1)], layer=0), DType.FLOAT32)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_pages_hold_bits_page_first(dtype: DType) -> None:
    rig = Rig(1, 2, 4, 16, dtype, 0)
    sequence = rig.sequence()
    rig.step([(sequence, 18)], layer=1)
    stored = rig.kv.pages.storage
    assert isinstance(stored, np.ndarray)
    assert stored.dtype == (np.uint16 if dtype is DType.BFLOAT16 else np.float32)
    assert stored.shape == (rig.kv.num_pages, 2, 2, 16, 2, 4)
    page, offset = sequence.page_ids[17 // 16], 17 % 16
    for plane, written in enumerate((sequence.keys, sequence.values)):
        held = stored[page, 1, plane, offset]
        bits = written[17].view(np.uint32) >> np.uint32(16)
        np.testing.assert_array_equal(held, bits if dtype is DType.BFLOAT16 else written[17])


def test_copied_pages_serve_like_their_originals() -> None:
    rig = Rig(2, 1, 8, 16, DType.BFLOAT16, 3)
    sequence = rig.sequence()
    rig.step([(sequence, 40)])
    copy = Context(list(rig.sequence().page_ids), list(sequence.keys), list(sequence.values))
    BACKEND.copy_pages(rig.kv, sequence.page_ids[:3], copy.page_ids[:3])
    check(*rig.step([(copy, 3)]), DType.BFLOAT16)
    BACKEND.clear_pages(rig.kv)
    stored = rig.kv.pages.storage
    assert isinstance(stored, np.ndarray)
    assert not stored.any()


def test_c04_bytes_a_token() -> None:
    def token_layer_bytes(head_dim: int) -> int:
        layout = KvLayout(
            num_layers=2, num_kv_heads=2, head_dim=head_dim, page_tokens=16, dtype=DType.BFLOAT16
        )
        pool = BACKEND.kv_pool(layout, 3)
        stored = pool.pages.storage
        assert isinstance(stored, np.ndarray)
        assert stored.nbytes == 4 * layout.page_bytes == 4 * 16 * layout.token_bytes
        return layout.token_layer_bytes

    assert token_layer_bytes(32) == 256
    assert token_layer_bytes(64 // 4) == 128
