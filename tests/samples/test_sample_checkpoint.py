"""The committed sample checkpoint is complete, small, and consistent with itself."""

import json
import math
import struct
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from samples.chat_format import SPECIAL_TOKENS, Turn, render_conversation
from tokenizers import Tokenizer

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
MAX_BYTES = 4_000_000
MAX_PARAMETERS = 2_000_000


@pytest.fixture(scope="module", params=["qwen3", "qwen35"])
def sample(request: pytest.FixtureRequest) -> Path:
    return SAMPLES / f"{request.param}-sample"


@pytest.fixture(scope="module")
def tokenizer(sample: Path) -> Tokenizer:
    return Tokenizer.from_file(str(sample / "tokenizer.json"))


@pytest.fixture(scope="module")
def config(sample: Path) -> dict:
    return read_json(sample / "config.json")


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tensors(sample: Path) -> dict:
    with (sample / "model.safetensors").open("rb") as file:
        (num_header_bytes,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(num_header_bytes))
    header.pop("__metadata__", None)
    return header


def test_the_folder_holds_what_a_server_needs_within_4_mb(sample):
    names = {path.name for path in sample.iterdir()}
    assert names == {
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in sample.iterdir()) <= MAX_BYTES


def test_weights_are_tied_bfloat16_of_the_config_shapes(tensors, config):
    assert {tensor["dtype"] for tensor in tensors.values()} == {"BF16"}
    assert "lm_head.weight" not in tensors and config["tie_word_embeddings"] is True
    vocab, hidden, width = config["vocab_size"], config["hidden_size"], config["head_dim"]
    assert tensors["model.embed_tokens.weight"]["shape"] == [vocab, hidden]
    num_layers = config["num_hidden_layers"]
    kinds = config.get("layer_types", ["full_attention"] * num_layers)
    gated = 2 if "linear_attention" in kinds else 1
    for layer in range(num_layers):
        if kinds[layer] == "linear_attention":
            heads = config["linear_num_value_heads"]
            decays = tensors[f"model.layers.{layer}.linear_attn.A_log"]
            assert decays["shape"] == [heads]
            continue
        attention = f"model.layers.{layer}.self_attn"
        q_rows = gated * config["num_attention_heads"] * width
        kv_rows = config["num_key_value_heads"] * width
        assert tensors[f"{attention}.q_proj.weight"]["shape"] == [q_rows, hidden]
        assert tensors[f"{attention}.k_proj.weight"]["shape"] == [kv_rows, hidden]
        assert tensors[f"{attention}.q_norm.weight"]["shape"] == [width]
    num_parameters = sum(math.prod(tensor["shape"]) for tensor in tensors.values())
    assert 1_000_000 < num_parameters <= MAX_PARAMETERS


def test_ids_of_tokenizer_and_configs_agree(sample, tokenizer, config):
    generation = read_json(sample / "generation_config.json")
    tokenizer_config = read_json(sample / "tokenizer_config.json")
    end_of_text, turn_start, turn_end = (tokenizer.token_to_id(t) for t in SPECIAL_TOKENS)
    assert tokenizer.get_vocab_size() == config["vocab_size"] == turn_end + 1
    assert (end_of_text, turn_start, turn_end) == (4093, 4094, 4095)
    assert generation["eos_token_id"] == [turn_end, end_of_text]
    assert config["eos_token_id"] == turn_end
    assert generation["repetition_penalty"] > 1.0
    assert tokenizer_config["eos_token"] == "<|im_end|>"
    assert config["max_position_embeddings"] == tokenizer_config["model_max_length"]


@pytest.mark.parametrize("text", ["Call me Ishmael.", " naïve — 12,345\r\n\n\tx  ", "鯨 🐳\x00"])
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def render(sample: Path, messages: list[dict], *, add_generation_prompt: bool) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    tokenizer_config = read_json(sample / "tokenizer_config.json")
    template = environment.from_string(tokenizer_config["chat_template"])
    return template.render(messages=messages, add_generation_prompt=add_generation_prompt)


def test_the_template_writes_the_text_the_model_was_trained_on(sample):
    roles = ["system", "user", "assistant", "user"]
    turns = [Turn(role=role, content=f"  {role} says\nso. ") for role in roles]
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    trained_on = render_conversation(turns)
    assert render(sample, messages, add_generation_prompt=False) == trained_on
    prompt = render(sample, messages, add_generation_prompt=True)
    assert prompt == trained_on + "<|im_start|>assistant\n"


def test_the_template_becomes_special_tokens(sample, tokenizer):
    messages = [{"role": "user", "content": "Tell me about the whale."}]
    ids = tokenizer.encode(render(sample, messages, add_generation_prompt=True)).ids
    assert ids[0] == 4094 and ids.count(4094) == 2 and ids.count(4095) == 1
