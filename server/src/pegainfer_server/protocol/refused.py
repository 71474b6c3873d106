"""Fields of other OpenAI-compatible servers that change an answer in ways not offered here.

They are refused unless their value asks for nothing. Fields that are not listed are unknown:
ignored, and logged once a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Neutral = tuple[object, ...]
"""Values beside null that ask for nothing."""

_NOTHING: Final[Neutral] = ()
_OFF: Final[Neutral] = (False,)
_EMPTY: Final[Neutral] = ([], "", {})

REFUSED: Final[Mapping[str, Neutral]] = {
    # Structured output, and tools in completions.
    "tools": _EMPTY,
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": _EMPTY,
    "function_call": ("none", "auto"),
    "structural_tag": _NOTHING,
    "guided_decoding_backend": _NOTHING,
    "guided_whitespace_pattern": _NOTHING,
    "json_schema": _EMPTY,
    "regex": _NOTHING,
    "ebnf": _NOTHING,
    "grammar": _EMPTY,
    "stop_regex": _EMPTY,
    "no_stop_trim": _OFF,
    # Chats know the first two; completions show an answer as it is.
    "include_reasoning": (True,),
    "separate_reasoning": (True, False),
    "thinking_token_budget": _NOTHING,
    # Other searches.
    "use_beam_search": _OFF,
    "length_penalty": (1, 1.0),
    "early_stopping": _OFF,
    # Other samplers.
    "typical_p": (1, 1.0),
    "top_a": (0, 0.0),
    "tfs_z": (1, 1.0),
    "mirostat": (0,),
    "dry_multiplier": (0, 0.0),
    "xtc_probability": (0, 0.0),
    "dynatemp_range": (0, 0.0),
    "logits_processors": _EMPTY,
    "custom_logit_processor": _NOTHING,
    "repetition_detection": _EMPTY,
    "vllm_xargs": _EMPTY,
    # What others call fields known here.
    "repeat_penalty": (1, 1.0),
    "max_new_tokens": _NOTHING,
    "min_new_tokens": (0,),
    "n_predict": _NOTHING,
    "n_probs": (0,),
    "n_cmpl": (1,),
    # Other inputs and outputs.
    "input_ids": _EMPTY,
    "logprob_token_ids": _EMPTY,
    "truncation_side": ("left",),
    "suffix": ("",),
    "chat_template": _NOTHING,
    "documents": _EMPTY,
    "prompt_embeds": _NOTHING,
    "modalities": (["text"],),
    "audio": _NOTHING,
    "prediction": _NOTHING,
    "web_search_options": _NOTHING,
    "mm_processor_kwargs": _EMPTY,
    "return_hidden_states": _OFF,
    "verbosity": ("medium",),
    "store": _OFF,
    "lora": _NOTHING,
    "lora_path": _NOTHING,
    "kv_transfer_params": _NOTHING,
}

REFUSED_IN_COMPLETIONS: Final[Mapping[str, Neutral]] = {
    **REFUSED,
    # Fields of chats: completions have no template.
    "reasoning_effort": _NOTHING,
    "chat_template_kwargs": _EMPTY,
    "continue_final_message": _OFF,
    "add_generation_prompt": (True, False),
    "max_completion_tokens": _NOTHING,
    "top_logprobs": (0,),
}
REFUSED_IN_CHAT: Final[Mapping[str, Neutral]] = {**REFUSED, "echo": _OFF}
