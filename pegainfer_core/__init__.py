"""pegainfer's core: contract, plugin host, engine parts, KV, backends, text and the offline API.

`LLM` and its parameters resolve lazily, so that plugin discovery imports neither NumPy nor a
tokenizer.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pegainfer_core.contract import SamplingParams, StructuredOutput
    from pegainfer_core.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "StructuredOutput", "__version__"]

_LAZY = {
    "LLM": "pegainfer_core.llm",
    "SamplingParams": "pegainfer_core.contract",
    "StructuredOutput": "pegainfer_core.contract",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
