"""One desk over the byte tokenizer, for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pegainfer_core.grammar import GrammarDesk
from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from tests.grammar.grammars import compiler


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_tokenizer(tmp_path_factory.mktemp("bytes"))


@pytest.fixture(scope="session")
def desk(tokenizer_folder: Path) -> Iterator[GrammarDesk]:
    made = GrammarDesk(compiler(tokenizer_folder))
    yield made
    made.close()
