"""The seam between model code and the machine it runs on.

Model code is written once against `Ops`, on `Tensor`s, in a `Workspace`, for the rows of a `Batch`.
`DType`, `KvLayout` and `StateLayout` are light; the other names import NumPy when first used,
because plans are made in processes that must not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.backend.choice import BackendName, choose_backend
from pegainfer_core.backend.dtype import DType, planned_dtype
from pegainfer_core.backend.kv_layout import KvLayout
from pegainfer_core.backend.state_layout import StateLayout

if TYPE_CHECKING:
    from pegainfer_core.backend.base import Backend
    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import (
        AttentionShape,
        AttentionWeights,
        DecoderWeights,
        MlpWeights,
    )
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.lm_head import LmHead
    from pegainfer_core.backend.lora_site import LayerLora, LoraSite
    from pegainfer_core.backend.making import make_backend
    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.numpy import NumpyBackend
    from pegainfer_core.backend.ops import Ops
    from pegainfer_core.backend.page_mover import CopyTicket, Fence, HostSlab, PageMover
    from pegainfer_core.backend.page_tables import PageTables
    from pegainfer_core.backend.recurrent import DeltaShape, DeltaWeights
    from pegainfer_core.backend.recurrent_ops import RecurrentOps
    from pegainfer_core.backend.rope import RopeTable, rope_tables
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.backend.workspace import Workspace, WorkspaceError

__all__ = [
    "AttentionShape",
    "AttentionWeights",
    "Backend",
    "BackendName",
    "Batch",
    "CopyTicket",
    "DType",
    "DecoderWeights",
    "DeltaShape",
    "DeltaWeights",
    "Fence",
    "HostSlab",
    "KvLayout",
    "KvPool",
    "LayerLora",
    "LmHead",
    "LoraSite",
    "MlpWeights",
    "NumpyBackend",
    "Ops",
    "PageMover",
    "PageTables",
    "RecurrentOps",
    "RopeTable",
    "StateLayout",
    "StatePool",
    "StepMetadata",
    "Tensor",
    "Workspace",
    "WorkspaceError",
    "choose_backend",
    "make_backend",
    "planned_dtype",
    "rope_tables",
]

_MODULES = {
    "AttentionShape": "decoder",
    "AttentionWeights": "decoder",
    "Backend": "base",
    "Batch": "batch",
    "CopyTicket": "page_mover",
    "DecoderWeights": "decoder",
    "DeltaShape": "recurrent",
    "DeltaWeights": "recurrent",
    "Fence": "page_mover",
    "HostSlab": "page_mover",
    "KvPool": "kv_pool",
    "LayerLora": "lora_site",
    "LmHead": "lm_head",
    "LoraSite": "lora_site",
    "MlpWeights": "decoder",
    "NumpyBackend": "numpy",
    "Ops": "ops",
    "PageMover": "page_mover",
    "PageTables": "page_tables",
    "RecurrentOps": "recurrent_ops",
    "RopeTable": "rope",
    "StatePool": "state_pool",
    "StepMetadata": "metadata",
    "Tensor": "tensor",
    "Workspace": "workspace",
    "WorkspaceError": "workspace",
    "make_backend": "making",
    "rope_tables": "rope",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
