"""The options about adapters: names, paths, counts, and what a slot takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pegainfer_core.backend import NumpyBackend
from pegainfer_core.backend.dtype import DType
from pegainfer_core.contract import CoreOptions
from pegainfer_core.lora import (
    LoraSlots,
    gated_decoder_layout,
    num_lora_slots,
    startup_adapters,
)
from pegainfer_core.lora.options import adapter_folder
from pegainfer_core.plugin import HostSettings, PluginHost, UserFault, prepare_launch
from pegainfer_core.testing.tiny import tiny_qwen3, tiny_qwen35
from pegainfer_core.weights import ConfigError

BAD_ADAPTER_NAMES = (
    *("", " ", ":", "x:y", "m:", "..", ".", "../x", "a/../b", "/x", "x/", "a//b", "a\\b"),
    *("\0", "a\nb", "a\x7f", "a\u202eb", " a", "a\t", "x" * 257),
)
BAD_ADAPTER_PATHS = ("", "  ", "\0", "a\0b", "~nobody-of-that-name/x")

LAYOUT = gated_decoder_layout(num_layers=3, hidden=64, intermediate=96, query_width=64, kv_width=32)


def options(*lora: str, **fields: int) -> CoreOptions:
    return CoreOptions(lora=list(lora), **fields)


def test_slots_and_folders_by_name() -> None:
    assert num_lora_slots(options()) == 0
    assert num_lora_slots(options(max_loras=3)) == 3
    named = options("a=/x/y", "b=/x=z")
    assert num_lora_slots(named) == 2
    assert startup_adapters(named) == {"a": "/x/y", "b": "/x=z"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (options("a"), ["--lora a", "NAME=PATH"]),
        (options("a="), ["NAME=PATH"]),
        (options("=b"), ["name"]),
        (options(" a=b"), ["' a'"]),
        (options("a\n=b"), ["name"]),
        (options("a=b", "a=c"), ["twice"]),
        (options("a=b", "c=d", max_loras=1), ["2 adapters", "--max-loras is 1"]),
    ],
)
def test_what_is_refused(given: CoreOptions, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        startup_adapters(given)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("name", ["a", "A.b-c_1", "team/sql", "x" * 256, "söl", "a b"])
def test_names(name: str) -> None:
    assert startup_adapters(options(f"{name}=/x")) == {name: "/x"}


@pytest.mark.parametrize("name", BAD_ADAPTER_NAMES)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--lora: .* is no name for an adapter"):
        startup_adapters(options(f"{name}=/x"))


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of")
    assert adapter_folder("a/b/") == tmp_path / "a/b"
    assert adapter_folder("~/a") == Path("/home/of/a")


@pytest.mark.parametrize("path", BAD_ADAPTER_PATHS)
def test_folders_that_are_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="lora_path is "):
        adapter_folder(path)


@pytest.mark.parametrize("max_rank", [1, 16, 40])
def test_a_slot_takes_what_is_said(max_rank: int) -> None:
    slots = LoraSlots(NumpyBackend(), LAYOUT, 2, max_rank, DType.FLOAT32)
    tensors = [
        tensor
        for layer in slots.layers
        for site in (layer.qkv, layer.out, layer.gate_up, layer.down)
        if site is not None
        for tensor in (site.down, site.up)
    ]
    held = sum(4 * int(tensor.shape[1] * tensor.shape[2]) for tensor in tensors)
    rank = -(-max_rank // 16) * 16
    assert held == LAYOUT.slot_bytes(rank, 4) == LAYOUT.slot_bytes(rank - 3, 4)


def test_slots_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*arguments: object) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(NumpyBackend, "empty", too_much)
    with pytest.raises(ConfigError, match=r"7 slots of .* MiB .* lower --max-loras"):
        LoraSlots(NumpyBackend(), LAYOUT, 7, 16, DType.FLOAT32)


def test_plans_say_whether_adapters_are_taken(tmp_path: Path) -> None:
    host = PluginHost.load(HostSettings(allowed=frozenset({"qwen3", "qwen35"}), strict=True))
    model = tiny_qwen3(tmp_path / "qwen3")
    off = prepare_launch(host, model, options=CoreOptions(backend="numpy")).plan
    assert not off.capabilities.lora and not off.notes
    core = CoreOptions(backend="numpy", max_loras=4, max_lora_rank=8)
    plan = prepare_launch(host, model, options=core).plan
    (note,) = plan.notes
    assert plan.capabilities.lora and "4 slots" in note and "MiB" in note
    hybrid = tiny_qwen35(tmp_path / "qwen35")
    with pytest.raises(UserFault, match=r"--max-lora.* is not used by the model family qwen35"):
        prepare_launch(host, hybrid, options=core)
