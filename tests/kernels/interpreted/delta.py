"""Delta-rule layers as the CUDA backend launches them, interpreted, beside the NumPy ops.

Runs in processes of its own; see `host`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend import (
    DeltaShape,
    DeltaWeights,
    DType,
    NumpyBackend,
    StateLayout,
    StatePool,
    StepMetadata,
    Workspace,
)
from pegainfer_core.backend.cuda.arrays import empty_tensor
from pegainfer_core.backend.cuda.step_shape import step_shape
from pegainfer_core.backend.cuda.work_items import PrefillLimits
from tests.kernels.interpreted.host import HostDevice, HostLibrary, array, stand_in_for_cupy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Tensor

LAYERS, LAYER = 2, 1
SLOTS = 9
MAX_TOKENS, MAX_ROWS = 512, 8
TOLERANCE = 2e-5


class Row(NamedTuple):
    """Of a step: tokens before it, tokens in it, its slot, and saves as (tokens, slot)."""

    start: int
    count: int
    slot: int
    saves: tuple[tuple[int, int], ...] = ()


class Case(NamedTuple):
    """A shape and steps one after the other, each with decoding rows first.

    Attributes:
        heads: Key heads, value heads, key channels, value channels, taps.
        steps: Rows of each step.
        recorded: Whether steps are filled up to a recorded shape.
        alike: Whether keys are nearly the same and neither decay nor strength is far from one, so
            that what tokens write depends on all before.
    """

    heads: tuple[int, int, int, int, int]
    steps: tuple[tuple[Row, ...], ...]
    recorded: bool = False
    alike: bool = False


def run(case: Case) -> None:
    """Fails where the two differ."""
    stand_in_for_cupy()
    _Layer(case).run()


class _Layer:
    def __init__(self, case: Case) -> None:
        from pegainfer_core.backend.cuda.cuda_products import CudaProducts
        from pegainfer_core.backend.cuda.cuda_recurrent_ops import CudaRecurrentOps
        from pegainfer_core.backend.cuda.work_items import AttentionLimits

        self.case = case
        key_heads, value_heads, key_dim, value_dim, taps = case.heads
        self.shape = DeltaShape(
            num_key_heads=key_heads,
            num_value_heads=value_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            conv_taps=taps,
            norm_eps=1e-3,
        )
        self.random = np.random.default_rng()
        self.backend = NumpyBackend()
        self.device = HostDevice()
        library = HostLibrary()
        products = CudaProducts(self.device, library, None)  # type: ignore[arg-type]
        self.ops = CudaRecurrentOps(self.backend.ops, products, self.device, library)  # type: ignore[arg-type]
        self.limits = AttentionLimits(4, 64, PrefillLimits(16, 64, 4))
        self._make_states(taps)
        weights = self._weights(taps, value_heads, value_dim)
        self.weights = DeltaWeights(
            **{name: self.backend.adopt(each, DType.FLOAT32) for name, each in weights.items()}
        )
        self.device_weights = DeltaWeights(
            **{name: self.device.tensor(each) for name, each in weights.items()}
        )

    def run(self) -> None:
        for number, rows in enumerate(self.case.steps):
            self._step(number, rows)

    def _make_states(self, taps: int) -> None:
        shape = self.shape
        layout = StateLayout(
            num_layers=LAYERS,
            num_heads=shape.num_value_heads,
            key_dim=shape.key_dim,
            value_dim=shape.value_dim,
            conv_width=shape.conv_width,
            conv_history=taps - 1,
            dtype=DType.FLOAT32,
        )
        self.states = self.backend.state_pool(layout, SLOTS)
        device, kind = self.device, DType.FLOAT32
        self.device_states = StatePool(
            layout,
            empty_tensor(device, (SLOTS, *layout.memory_shape), kind),  # type: ignore[arg-type]
            empty_tensor(device, (SLOTS, *layout.conv_shape), kind),  # type: ignore[arg-type]
        )
        for mine, its in self._state_arrays():
            mine[...] = its[...] = np.nan

    def _state_arrays(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        pairs = (
            (self.states.memory, self.device_states.memory),
            (self.states.conv, self.device_states.conv),
        )
        return [(_numpy(mine)[:SLOTS], array(its)) for mine, its in pairs]

    def _weights(self, taps: int, heads: int, width: int) -> dict[str, NDArray[np.float32]]:
        nothing = np.zeros((1, 1), np.float32)
        return {
            "input_norm": nothing,
            "projection": nothing,
            "conv": self._values(taps, self.shape.conv_width) + (2 if self.case.alike else 0),
            # Slow enough that tokens far apart know of each other.
            "decay_rate": -np.exp(self._values(heads) - (9 if self.case.alike else 4)),
            "decay_bias": self._values(heads),
            "norm": self._values(width),
            "out": nothing,
        }

    def _values(self, *shape: int) -> NDArray[np.float32]:
        return self.random.standard_normal(shape).astype(np.float32)

    def _inputs(self, count: int) -> NDArray[np.float32]:
        x = self._values(count, self.shape.projected_width)
        if self.case.alike:
            x[:, : self.shape.conv_width] *= 0.05
            x[:, : self.shape.conv_width] += 1
            x[:, -2 * self.shape.num_value_heads : -self.shape.num_value_heads] += 8
        return x

    def _metadata(self, rows: tuple[Row, ...]) -> StepMetadata:
        metadata = StepMetadata(MAX_TOKENS, MAX_ROWS, 1000, 16, max_saves=16)
        for row in rows:
            pages = [1] * -(-(row.start + row.count) // 16)
            tokens = [0] * row.count
            metadata.add_row(tokens, row.start, pages, samples=True, slot=row.slot)
        for index, row in enumerate(rows):
            for tokens_in, slot in row.saves:
                metadata.add_save(index, tokens_in, slot)
        metadata.finish(next((i for i, row in enumerate(rows) if row.count > 1), len(rows)))
        return metadata

    def _step(self, number: int, rows: tuple[Row, ...]) -> None:
        from pegainfer_core.backend.cuda.metadata_upload import MetadataUpload

        metadata = self._metadata(rows)
        count, shape = metadata.num_tokens, self.shape
        x = np.zeros((MAX_TOKENS, shape.projected_width), np.float32)
        x[:count] = self._inputs(count)
        expected = self.backend.empty((MAX_TOKENS, shape.value_width), DType.FLOAT32)
        self.backend.recurrent_ops().gated_delta(
            self.backend.upload(metadata),
            self.backend.adopt(x, DType.FLOAT32),
            self.weights,
            shape,
            self.states,
            LAYER,
            expected,
            self.backend.workspace(MAX_TOKENS, 64),
        )
        device: object = self.device
        upload = MetadataUpload(device, metadata, self.limits, 0, recurrent=True)  # type: ignore[arg-type]
        wanted = step_shape(metadata) if self.case.recorded else None
        batch = upload.submit(metadata, wanted)
        assert (batch.shape is not None) == self.case.recorded
        found = self.device.tensor(np.full((MAX_TOKENS, shape.value_width), np.nan, np.float32))
        workspace = Workspace(
            lambda sizes, kind: empty_tensor(self.device, sizes, kind),  # type: ignore[arg-type]
            MAX_TOKENS,
            64,
        )
        self.ops.gated_delta(
            batch, self.device.tensor(x), self.device_weights, shape, self.device_states, LAYER,
            found, workspace,
        )  # fmt: skip
        self._check(number, _numpy(expected)[:count], array(found)[:count])

    def _check(
        self, number: int, expected: NDArray[np.float32], found: NDArray[np.float32]
    ) -> None:
        assert_close(found, expected, f"outputs of step {number}")
        for mine, its in self._state_arrays():
            np.testing.assert_array_equal(np.isnan(its), np.isnan(mine))
            for slot in range(SLOTS):
                if not np.isnan(mine[slot, LAYER]).any():
                    what = f"slot {slot} after step {number}"
                    assert_close(its[slot, LAYER], mine[slot, LAYER], what)


def assert_close(found: NDArray[np.float32], expected: NDArray[np.float32], what: str) -> None:
    """Norm of the difference over the norm of the reference."""
    assert np.isfinite(expected).all()
    assert np.isfinite(found).all(), f"{what}: {np.isnan(found).sum()} values were not written"
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert error <= TOLERANCE, f"{what}: {error}"


def _numpy(tensor: Tensor) -> NDArray[np.float32]:
    from pegainfer_core.backend.numpy.arrays import floats

    return floats(tensor)
