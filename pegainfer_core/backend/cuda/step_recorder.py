"""Runs steps by replaying what was recorded of earlier ones of the same shape."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.faults import gpu_label, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device, Recording
    from pegainfer_core.backend.cuda.step_shape import StepShape

logger = logging.getLogger(__name__)


class StepRecorder:
    """Decides when a recording is made. It lies with the upload whose addresses it holds.

    Args:
        device: Where steps run.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._records_more = True

    def run(self, batch: CudaBatch, shape: StepShape, work: Callable[[Batch], None]) -> None:
        """Replay the recording of `work` at a shape, made at its second use."""
        recordings = batch.upload.recordings
        key = (shape, work)
        recording = recordings.get(key)
        if recording is not None:
            recording.replay(self._device)
        elif key in recordings and self._records_more:
            recordings[key] = self._run_recorded(batch, work)
        else:
            # The first use loads kernels and plans products, which no recording may do.
            work(batch)
            recordings[key] = None

    def _run_recorded(self, batch: CudaBatch, work: Callable[[Batch], None]) -> Recording | None:
        """Record and run once; without memory for that, run as it is, now and later."""
        try:
            recording = self._device.record(lambda: work(batch))
            recording.replay(self._device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            self._records_more = False
            free, _ = self._device.memory()
            logger.warning(
                "%s: no memory to record steps of %d rows (%.0f MiB are free; %s); no more steps "
                "are recorded, which makes them slower; lower --gpu-memory-utilization or "
                "--num-kv-pages, or silence this with --no-cuda-graph",
                gpu_label(self._device), batch.num_tokens, free / 2**20, error,
            )  # fmt: skip
            work(batch)
            return None
        return recording
