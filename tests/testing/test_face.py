"""What `pegainfer_core.testing` needs: the kit pytest and core, the rest not even pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_NEEDED = ("hypothesis", "httpx", "litestar", "psutil", "openai", "pegainfer_server")


@pytest.mark.parametrize(
    ("blocked", "code"),
    [
        (("pytest", *NOT_NEEDED), "from pegainfer_core.testing import byte_tokenizer, tiny_qwen3"),
        (NOT_NEEDED, "from pegainfer_core.testing import *"),
    ],
)
def test_it_imports_without(blocked: tuple[str, ...], code: str) -> None:
    block = f"import sys\nfor name in {blocked!r}:\n    sys.modules[name] = None\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_byte_tokenizer_is_the_function_and_not_its_module() -> None:
    from pegainfer_core.testing import byte_tokenizer

    assert callable(byte_tokenizer)
