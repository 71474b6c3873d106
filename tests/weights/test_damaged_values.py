"""A checkpoint whose values are no numbers is refused while it is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pegainfer_core import LLM
from pegainfer_core.testing.tiny import tiny_qwen3
from pegainfer_core.weights import ConfigError


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_that_are_not_finite_are_refused(tmp_path: Path, dtype: str, bad: float) -> None:
    folder = tiny_qwen3(tmp_path / "m", dtype=dtype)  # type: ignore[arg-type]
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    bits = np.array(bad, np.float32).tobytes()
    data[-4:] = bits if dtype == "float32" else bits[2:] * 2
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"model\.safetensors: tensor \S+ holds values that are"):
        LLM(str(folder), backend="numpy")


def test_an_absurd_number_of_layers_is_refused_at_once(tmp_path: Path) -> None:
    from pegainfer_core.testing.tiny import edit_config

    folder = tiny_qwen3(tmp_path / "m")
    edit_config(folder, lambda config: config.update(num_hidden_layers=10**9))
    with pytest.raises(ConfigError, match="num_hidden_layers is 1000000000"):
        LLM(str(folder), backend="numpy")
