"""A table model on disk, plugins to serve it, and an `LLM` over both."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pegainfer_core import LLM
from pegainfer_core.plugin import HostSettings, PluginHost, PluginRecord
from pegainfer_core.testing.byte_tokenizer import byte_tokenizer
from tests.llm import table_plugin

Table = Mapping[int, Mapping[int, float]]
MakeLLM = Callable[..., LLM]

TEMPLATE = (
    "{{ greeting }}|{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}@{% endif %}"
)


def script(*token_ids: int) -> dict[int, dict[int, float]]:
    """Each id follows the one before it."""
    return {last: {token_id: 40.0} for last, token_id in itertools.pairwise(token_ids)}


def write_table_model(
    folder: Path, table: Table, generation: Mapping[str, object] | None = None, **config: object
) -> Path:
    byte_tokenizer(folder, chat_template=TEMPLATE)
    values = {"model_type": "table", "eos_token_id": 256, "table": table, **config}
    (folder / "config.json").write_text(json.dumps(values))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def table_host() -> PluginHost:
    entry = EntryPoint("table", "tests.llm.table_plugin", "pegainfer.plugins")
    record = PluginRecord(
        name="table", dist="table", version="1", location="", entry_point=entry.value
    )
    host = PluginHost(HostSettings(strict=True))
    host.load_plugins([(record, entry)])
    return host


@pytest.fixture
def make_llm(tmp_path: Path) -> Iterator[MakeLLM]:
    """`make_llm(table, generation=..., **options)`; closed at the end."""
    made: list[LLM] = []
    table_plugin.records.clear()
    table_plugin.life.clear()

    def make(
        table: Table, generation: Mapping[str, object] | None = None, **options: int | str
    ) -> LLM:
        folder = write_table_model(tmp_path / f"model{len(made)}", table, generation)
        made.append(LLM(folder, host=table_host(), **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()
