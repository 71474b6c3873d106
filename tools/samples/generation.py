"""Get greedy text from a checkpoint through transformers, or from a server through HTTP.

Both apply the checkpoint's repetition penalty: transformers is told to, a server is expected to
read generation_config.json by itself.
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A prompt and the answer to it; `finish_reason` is "stop" or "length"."""

    prompt: str
    text: str
    finish_reason: str


class Generator(Protocol):
    """Something that writes greedy text."""

    def complete(self, prompt: str, max_tokens: int) -> Generation:
        """Continue a text."""
        ...

    def chat(self, prompt: str, max_tokens: int) -> Generation:
        """Answer one user message."""
        ...


class CheckpointGenerator:
    """Runs a checkpoint folder with transformers in float32 on the CPU."""

    def __init__(self, folder: Path) -> None:
        # torch takes seconds to import and a check of a server does not need it.
        from transformers import AutoTokenizer, GenerationConfig

        from samples.families import load_float32

        self._model = load_float32(folder)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        raw = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
        self._end_ids = raw["eos_token_id"]
        # The model would fill unset fields from its own config, temperature and all.
        self._model.generation_config = GenerationConfig(
            do_sample=False,
            repetition_penalty=raw["repetition_penalty"],
            eos_token_id=self._end_ids,
            pad_token_id=raw["pad_token_id"],
        )

    def _generate(self, prompt: str, text: str, max_tokens: int) -> Generation:
        inputs = self._tokenizer(text, return_tensors="pt", add_special_tokens=False)
        num_prompt_tokens = inputs["input_ids"].shape[1]
        output = self._model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            max_new_tokens=max_tokens,
        )
        token_ids = output[0, num_prompt_tokens:].tolist()
        stopped = bool(token_ids) and token_ids[-1] in self._end_ids
        return Generation(
            prompt=prompt,
            text=self._tokenizer.decode(token_ids, skip_special_tokens=True),
            finish_reason="stop" if stopped else "length",
        )

    def complete(self, prompt: str, max_tokens: int) -> Generation:
        """Continue a text."""
        return self._generate(prompt, prompt, max_tokens)

    def chat(self, prompt: str, max_tokens: int) -> Generation:
        """Answer one user message."""
        messages = [{"role": "user", "content": prompt}]
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return self._generate(prompt, text, max_tokens)


class ServerGenerator:
    """Asks the first model of an OpenAI-compatible server."""

    def __init__(self, base_url: str) -> None:
        self._root = base_url.rstrip("/").removesuffix("/v1") + "/v1"
        self._model = self._ask("/models", None)["data"][0]["id"]

    def _ask(self, path: str, body: dict[str, object] | None):  # type: ignore[no-untyped-def]
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._root + path, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=300) as response:
            return json.load(response)

    def complete(self, prompt: str, max_tokens: int) -> Generation:
        """Continue a text."""
        body: dict[str, object] = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        choice = self._ask("/completions", {"model": self._model, **body})["choices"][0]
        return Generation(prompt=prompt, text=choice["text"], finish_reason=choice["finish_reason"])

    def chat(self, prompt: str, max_tokens: int) -> Generation:
        """Answer one user message."""
        body: dict[str, object] = {
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
        }
        choice = self._ask("/chat/completions", {"model": self._model, **body})["choices"][0]
        return Generation(
            prompt=prompt,
            text=choice["message"]["content"],
            finish_reason=choice["finish_reason"],
        )
