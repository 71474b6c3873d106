"""Qwen3's released sizes with random weights, on the engine's backend and in transformers."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from pegainfer_qwen3.config import parse_config
from pegainfer_qwen3.weights import model_specs

from pegainfer_core.backend import DType
from pegainfer_core.weights import DummyCheckpoint, ParameterLoader
from plugins.pegainfer_qwen3.tests.stepper import Stepper
from tests.gpu.torch_qwen3 import TorchQwen3, as_torch
from tests.hf.teacher_forced import TeacherForced, ask, random_texts

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from pegainfer_core.backend.cuda import CudaBackend

SEED = 11

#: Tokens of the texts, taken in turn: inside a page, over pages, over parts of a context.
LENGTHS = (6, 21, 41, 68, 300)
MOST_ROWS = 200
LONG = (601, 1500, 2603)

SIZES: dict[str, dict[str, object]] = {
    "0.6B": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
    },
    "4B": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
}
_SPARE_BYTES = 12 << 30


def full_size(name: str, folder: Path, backend: CudaBackend) -> TeacherForced:
    """A Qwen3 of a released size: `MOST_ROWS` texts of mixed lengths, then the long ones."""
    config = _fitting(SIZES[name], backend)
    (folder / "config.json").write_text(json.dumps(config))
    lengths = [LENGTHS[i % len(LENGTHS)] for i in range(MOST_ROWS)] + list(LONG)
    texts = random_texts(lengths, int(str(config["vocab_size"])))
    parameters = _parameters(config, backend)
    rounded = TorchQwen3(config, parameters)
    exact = TorchQwen3(config, {key: held.float() for key, held in parameters.items()})
    references = ask(exact, rounded, texts)
    del parameters, rounded, exact
    stepper = Stepper(
        folder,
        backend=backend,
        load_format="dummy",
        seed=SEED,
        max_num_seqs=256,
        max_prefill_tokens=4096,
        max_model_len=4096,
        num_kv_pages=sum(-(-length // 16) for length in lengths) + 16,
    )
    return TeacherForced(stepper, texts, references)


def _parameters(config: dict[str, object], backend: CudaBackend) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors one by one, by the device's own generator."""
    specs = model_specs(parse_config(config))
    with DummyCheckpoint(specs, seed=SEED, dtype="bfloat16") as source:
        loader = ParameterLoader(source, specs, dtype="bfloat16", rename=str, ignore=())
        held = {name: backend.load(loader, [name], DType.BFLOAT16) for name in specs}
        backend.end_loading()
    return {name: as_torch(tensor) for name, tensor in held.items()}


def _fitting(sizes: dict[str, object], backend: CudaBackend) -> dict[str, object]:
    """config.json of a size, with fewer layers where the device is too small for all.

    Held at once: the parameters in bfloat16 twice, for the engine and transformers, and in float32.
    """
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        **sizes,
    }
    specs = model_specs(parse_config(config))
    num_values = [math.prod(spec.shape) for spec in specs.values()]
    whole = int(str(config["num_hidden_layers"]))
    layer_bytes = 8 * (sum(num_values) - num_values[0]) // whole
    room = backend.device.memory()[0] - _SPARE_BYTES - 8 * num_values[0]
    config["num_hidden_layers"] = max(min(whole, room // layer_bytes), 2)
    return config
