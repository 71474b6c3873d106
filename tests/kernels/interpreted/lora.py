"""Adapters as the CUDA backend adds them, interpreted, beside the NumPy ops.

Runs in processes of its own; see `host`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pegainfer_core.backend import DType, LoraSite, NumpyBackend, StepMetadata, Workspace
from pegainfer_core.backend.cuda.arrays import empty_tensor
from pegainfer_core.backend.cuda.step_shape import step_shape
from pegainfer_core.backend.cuda.work_items import PrefillLimits
from pegainfer_core.backend.numpy.arrays import floats
from tests.kernels.interpreted.delta import assert_close
from tests.kernels.interpreted.host import HostDevice, HostLibrary, array, stand_in_for_cupy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pegainfer_core.backend import Batch, Tensor

MAX_TOKENS, MAX_ROWS = 128, 40


class Case(NamedTuple):
    """A site and steps one after the other.

    Attributes:
        width: Of the inputs.
        widths: Outputs of each part.
        room: Ranks of a slot.
        ranks: Of the adapter in each slot, 0 for none.
        steps: Rows of each step as (tokens, slot), decoding rows first.
        recorded: Whether steps are filled up to a recorded shape.
    """

    width: int
    widths: tuple[int, ...]
    room: int
    ranks: tuple[int, ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]
    recorded: bool = False


def run(case: Case) -> None:
    """Fails where the two differ."""
    stand_in_for_cupy()
    _Site(case).run()


class _Site:
    def __init__(self, case: Case) -> None:
        from pegainfer_core.backend.cuda.cuda_lora import CudaLora
        from pegainfer_core.backend.cuda.work_items import AttentionLimits

        self.case = case
        self.random = np.random.default_rng()
        self.backend = NumpyBackend()
        self.device = HostDevice()
        self.lora = CudaLora(self.device, HostLibrary())  # type: ignore[arg-type]
        self.limits = AttentionLimits(4, 64, PrefillLimits(16, 64, 4))
        down, up, facts = self._matrices()
        kind = DType.FLOAT32
        self.site = LoraSite(
            *(self.backend.adopt(each.copy(), kind) for each in (down, up, facts)), case.widths
        )
        self.device_site = LoraSite(
            *(self.device.tensor(each) for each in (down, up, facts)), case.widths
        )
        self.workspace = Workspace(
            lambda sizes, kind: empty_tensor(self.device, sizes, kind),  # type: ignore[arg-type]
            MAX_TOKENS,
            64,
        )

    def run(self) -> None:
        for rows in self.case.steps:
            self._step(rows)

    def _matrices(self) -> tuple[NDArray[np.float32], ...]:
        """Not a number wherever nothing may be read: in slots without an adapter."""
        case = self.case
        slots, parts = len(case.ranks), len(case.widths)
        down = np.full((slots, parts * case.room, case.width), np.nan, np.float32)
        up = np.full((slots, sum(case.widths), case.room), np.nan, np.float32)
        facts = np.zeros((slots, 2), np.float32)
        for slot, rank in enumerate(case.ranks):
            if not rank:
                continue
            down[slot], up[slot] = 0, 0
            for part in range(parts):
                first = part * case.room
                down[slot, first : first + rank] = self._values(rank, case.width)
            up[slot, :, :rank] = self._values(sum(case.widths), rank)
            facts[slot] = 0.25 + slot, rank
        return down, up, facts

    def _values(self, *shape: int) -> NDArray[np.float32]:
        return self.random.standard_normal(shape).astype(np.float32)

    def _step(self, rows: tuple[tuple[int, int], ...]) -> None:
        from pegainfer_core.backend.cuda.metadata_upload import MetadataUpload

        metadata = StepMetadata(MAX_TOKENS, MAX_ROWS, 1000, 16)
        for count, slot in rows:
            pages = [1] * -(-count // 16)
            metadata.add_row([0] * count, 0, pages, samples=True, adapter=slot)
        metadata.finish(next((i for i, row in enumerate(rows) if row[0] > 1), len(rows)))
        device: object = self.device
        upload = MetadataUpload(
            device,  # type: ignore[arg-type]
            metadata,
            self.limits,
            0,
            num_lora_slots=len(self.case.ranks),
        )
        wanted = step_shape(metadata) if self.case.recorded else None
        batch = upload.submit(metadata, wanted)
        assert (batch.shape is not None) == self.case.recorded
        assert batch.adapted
        x = np.full((MAX_TOKENS, self.case.width), np.nan, np.float32)
        x[: metadata.num_tokens] = self._values(metadata.num_tokens, self.case.width)
        before = self._values(MAX_TOKENS, sum(self.case.widths))
        expected = self._on_numpy(self.backend.upload(metadata), x, before)
        found = self.device.tensor(before)
        inputs, site = self.device.tensor(x), self.device_site
        self.lora.shrink(batch, inputs, site, self.workspace)
        self.lora.expand(batch, inputs.width, site, found, self.workspace)
        assert_close(array(found), floats(expected), "sums")
        untouched = np.ones(MAX_TOKENS, bool)
        first = 0
        for count, slot in rows:
            untouched[first : first + count] = slot < 0 or not self.case.ranks[slot]
            first += count
        # Rows without an adapter, and those that a step is filled up with, bit by bit.
        np.testing.assert_array_equal(array(found)[untouched], before[untouched])
        changed = array(found)[~untouched] != before[~untouched]
        assert changed.all()

    def _on_numpy(
        self, batch: Batch, x: NDArray[np.float32], before: NDArray[np.float32]
    ) -> Tensor:
        out = self.backend.adopt(before.copy(), DType.FLOAT32)
        inputs = self.backend.adopt(x, DType.FLOAT32)
        workspace = self.backend.workspace(MAX_TOKENS, 64)
        self.backend.ops.add_lora(batch, inputs, self.site, out, workspace)
        return out
