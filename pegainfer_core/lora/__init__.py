"""LoRA adapters: where a model takes them, reading PEFT folders, and slots that hold them.

Layout and options are light; what holds tensors imports NumPy when first used, because plans are
made in processes that must not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from pegainfer_core.lora.layout import (
    LoraLayout,
    LoraModule,
    LoraProduct,
    gated_decoder_layout,
)
from pegainfer_core.lora.options import (
    check_adapter_name,
    num_lora_slots,
    startup_adapters,
    with_lora,
)

if TYPE_CHECKING:
    from pegainfer_core.lora.reader import AdapterWeights, LowRankPair, read_adapter
    from pegainfer_core.lora.slots import LoraSlots, PackedAdapter

__all__ = [
    "AdapterWeights",
    "LoraLayout",
    "LoraModule",
    "LoraProduct",
    "LoraSlots",
    "LowRankPair",
    "PackedAdapter",
    "check_adapter_name",
    "gated_decoder_layout",
    "num_lora_slots",
    "read_adapter",
    "startup_adapters",
    "with_lora",
]

_MODULES = {
    "AdapterWeights": "reader",
    "LoraSlots": "slots",
    "LowRankPair": "reader",
    "PackedAdapter": "slots",
    "read_adapter": "reader",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
