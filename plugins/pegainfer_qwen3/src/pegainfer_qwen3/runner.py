"""Qwen3's runner: core's, for a model whose only state is paged KV."""

from __future__ import annotations

from pegainfer_core.engine import DecoderRunner


class Qwen3Runner(DecoderRunner):
    """Runs a `Qwen3Model`."""
