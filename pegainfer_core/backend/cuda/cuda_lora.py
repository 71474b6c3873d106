"""Adds what low-rank adapters make of a step's tokens, on the device's stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pegainfer_core.backend.cuda.arrays import address, element
from pegainfer_core.backend.dtype import DType
from pegainfer_core.kernels import catalog

if TYPE_CHECKING:
    from pegainfer_core.backend.cuda.cuda_batch import CudaBatch
    from pegainfer_core.backend.cuda.device import Device
    from pegainfer_core.backend.cuda.library import KernelLibrary
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace


class CudaLora:
    """Launches the two kernels of a site.

    Args:
        device: Where everything lies.
        library: Its kernels.
    """

    def __init__(self, device: Device, library: KernelLibrary) -> None:
        self._device = device
        self._library = library

    def add(
        self, batch: CudaBatch, x: Tensor, site: LoraSite, out: Tensor, workspace: Workspace
    ) -> None:
        """See `Ops.add_lora`.

        Raises:
            ValueError: The backend was not told of adapters before it saw the step.
        """
        work = batch.lora
        if work is None:
            raise ValueError("tell the backend of adapters before the first step")
        parts, rank = len(site.widths), site.rank
        splits = catalog.lora_splits(x.width)
        width = splits * parts * rank
        shrunk = workspace.buffer(f"lora_shrunk_{width}", width, DType.FLOAT32)
        shared = (address(site.facts), work.tiles, work.num_tiles, work.tokens)
        self._library.get(catalog.lora_shrink(element(x.dtype), x.width)).launch(
            self._device.stream,
            (work.max_tiles, parts * rank // catalog.LORA_RANKS * splits),
            address(x), address(site.down), *shared, address(shrunk), x.width, parts, rank,
        )  # fmt: skip
        widths = (*site.widths, 0, 0)[:3]
        blocks = sum(-(-each // catalog.LORA_OUTPUTS) for each in widths)
        self._library.get(catalog.lora_expand(element(out.dtype), x.width, site.widths)).launch(
            self._device.stream, (work.max_tiles, blocks),
            address(shrunk), address(site.up), *shared, address(out), site.num_outputs, parts,
            rank, *widths,
        )  # fmt: skip
