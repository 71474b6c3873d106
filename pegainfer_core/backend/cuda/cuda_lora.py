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
    from pegainfer_core.backend.cuda.lora_items import LoraWork
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
        self._overlaps = device.arch >= catalog.OVERLAP_ARCH

    def shrink(self, batch: CudaBatch, x: Tensor, site: LoraSite, workspace: Workspace) -> None:
        """Multiply the inputs with A; best ahead of the product, whose weights arrive meanwhile.

        Raises:
            ValueError: The backend was not told of adapters before it saw the step.
        """
        work, parts = _work(batch), len(site.widths)
        splits, shrunk = _shrunk(batch, x.width, site, workspace)
        kind, overlaps = element(x.dtype), self._overlaps
        spec = catalog.lora_shrink(kind, x.width, splits, site.rank, overlaps=overlaps)
        self._library.get(spec).launch(
            self._device.stream,
            (work.max_tiles, parts * site.rank // catalog.LORA_RANKS * splits),
            address(x), address(site.down), address(site.facts), work.tiles, work.num_tiles,
            work.tokens, address(shrunk), x.width, parts, site.rank,
        )  # fmt: skip

    def expand(
        self, batch: CudaBatch, width: int, site: LoraSite, out: Tensor, workspace: Workspace
    ) -> None:
        """Add the product of that with B to `out`.

        Args:
            batch: The step.
            width: Of the inputs that `shrink` multiplied.
            site: As there.
            out: See `Ops.add_lora`.
            workspace: As there.
        """
        work = _work(batch)
        widths = (*site.widths, 0, 0)[:3]
        blocks = sum(-(-each // catalog.LORA_OUTPUTS) for each in widths)
        kind, overlaps = element(out.dtype), self._overlaps
        splits, shrunk = _shrunk(batch, width, site, workspace)
        spec = catalog.lora_expand(kind, splits, site.widths, site.rank, overlaps=overlaps)
        self._library.get(spec).launch(
            self._device.stream, (work.max_tiles, blocks),
            address(shrunk), address(site.up), address(site.facts),
            work.tiles, work.num_tiles, work.tokens, address(out), site.num_outputs,
            len(site.widths), site.rank, *widths,
        )  # fmt: skip


def _work(batch: CudaBatch) -> LoraWork:
    if batch.lora is None:
        raise ValueError("tell the backend of adapters before the first step")
    return batch.lora


def _shrunk(
    batch: CudaBatch, width: int, site: LoraSite, workspace: Workspace
) -> tuple[int, Tensor]:
    """Shares of the inputs for so many tokens, and what lies between the two kernels."""
    found = {}
    # All kinds are laid out even if the first step is small.
    for tokens in catalog.LORA_STEP_TOKENS:
        splits = catalog.lora_splits(width, tokens, site.rank)
        values = splits * len(site.widths) * site.rank
        rows = min(tokens, workspace.max_tokens) if tokens < max(catalog.LORA_STEP_TOKENS) else None
        name = f"lora_shrunk_{values}_{rows}"
        found[splits] = workspace.buffer(name, values, DType.FLOAT32, rows)
    splits = catalog.lora_splits(width, batch.num_tokens, site.rank)
    return splits, found[splits]
