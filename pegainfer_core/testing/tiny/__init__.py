"""Tiny checkpoints for tests, made by NumPy in well under a second.

Values depend on the seed and the tensor's name only, and are the same on every machine, so that
goldens made from a reference implementation hold without it.
"""

from pegainfer_core.testing.tiny.adapter import ADAPTER_MODULES, tiny_adapter
from pegainfer_core.testing.tiny.folder import edit_config
from pegainfer_core.testing.tiny.qwen3 import tiny_qwen3
from pegainfer_core.testing.tiny.qwen35 import tiny_qwen35
from pegainfer_core.testing.tiny.table import TableRow, row, script, table_model

__all__ = [
    "ADAPTER_MODULES",
    "TableRow",
    "edit_config",
    "row",
    "script",
    "table_model",
    "tiny_adapter",
    "tiny_qwen3",
    "tiny_qwen35",
]
