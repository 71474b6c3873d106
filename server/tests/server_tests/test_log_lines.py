"""What the command says of itself, for people and for machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.testing.tiny import tiny_qwen3

from .served_process import running


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_every_line_is_of_one_form(tmp_path: Path, log_format: str) -> None:
    """Notes of the plan, which precede the log, too."""
    byte_tokenizer(tiny_qwen3(tmp_path, vocab=300))
    flags = ["--backend", "numpy", "--max-loras", "1", "--log-format", log_format]
    with running(tmp_path, *flags, "--host", "0.0.0.0") as server:
        server.process.terminate()
        assert server.exit_code() == 0
        lines = server.output.splitlines()
    said = [json.loads(line)["message"] for line in lines] if log_format == "json" else lines
    assert sum("LoRA: 1 slots" in line for line in said) == 1
    assert any("API keys" in line and "--api-key-file" in line for line in said)
