from pathlib import Path

import pytest

from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from pegainfer_core.text import Tokenizer
from tests.real_inputs import released_tokenizer


@pytest.fixture(scope="session")
def byte_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_tokenizer(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="session")
def bytes_tokenizer(byte_folder: Path) -> Tokenizer:
    return Tokenizer.from_dir(byte_folder)


@pytest.fixture(scope="session")
def qwen3_folder() -> Path:
    return released_tokenizer("qwen3")


@pytest.fixture(scope="session")
def qwen3(qwen3_folder: Path) -> Tokenizer:
    return Tokenizer.from_dir(qwen3_folder)
