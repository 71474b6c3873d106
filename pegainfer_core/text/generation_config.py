"""Sampling defaults and end tokens that a checkpoint's files declare.

Knows no request: whoever merges these with a request decides the precedence.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from pegainfer_core.text.errors import GenerationConfigError
from pegainfer_core.text.json_file import find_file, read_json_object
from pegainfer_core.text.tokenizer import Tokenizer

__all__ = ["GenerationDefaults", "end_token_ids"]

_FILE = "generation_config.json"


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What generation_config.json says; None where it says nothing.

    `do_sample` is not among them: transformers samples only when it is true, but users of
    OpenAI-compatible servers expect temperature 1 where none is set, and vLLM ignores the field
    too. A checkpoint that wants greedy answers by default says `"temperature": 0`.

    Attributes:
        temperature: at least 0; 0 is greedy.
        top_p: above 0, at most 1.
        top_k: at least -1; 0 and -1 switch it off.
        min_p: 0 to 1.
        repetition_penalty: above 0.
        max_new_tokens: at least 1; stands in for an absent `max_tokens`.
        eos_token_ids: end tokens, see `end_token_ids`.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_new_tokens: int | None = None
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def from_dir(cls, directory: str | Path, source: str = "auto") -> "GenerationDefaults":
        """Read the file of a model folder.

        Args:
            directory: folder of the checkpoint; without the file nothing is set.
            source: `auto`; `none` for the end tokens alone, as a model that no longer ends its
                answers is not what `--generation-config none` asks for; or another folder or
                file to read instead, which must exist.

        Raises:
            GenerationConfigError: the file is unreadable or a value is out of range.
        """
        path = _source_path(Path(directory), source)
        if path is None:
            return cls()
        values = read_json_object(path, GenerationConfigError)
        eos_ids = _token_ids(values.get("eos_token_id"), f"eos_token_id in {path}")
        if source == "none":
            return cls(eos_token_ids=eos_ids)
        given = {name: values[name] for name in _BOUNDS if values.get(name) is not None}
        for name, value in given.items():
            _check(name, value, path)
        return msgspec.convert({**given, "eos_token_ids": eos_ids}, cls)

    def sampling(self) -> dict[str, float | int]:
        """The sampling fields that are set, by name: what to log at start and to merge."""
        values = msgspec.structs.asdict(self)
        return {name: values[name] for name in _BOUNDS if values[name] is not None}


# Lowest and highest value, and whether the lowest itself is allowed.
_BOUNDS: Mapping[str, tuple[type, float, float, bool]] = {
    "temperature": (float, 0.0, float("inf"), True),
    "top_p": (float, 0.0, 1.0, False),
    "top_k": (int, -1, float("inf"), True),
    "min_p": (float, 0.0, 1.0, True),
    "repetition_penalty": (float, 0.0, float("inf"), False),
    "max_new_tokens": (int, 1, float("inf"), True),
}


def end_token_ids(
    config: Mapping[str, object], defaults: GenerationDefaults, tokenizer: Tokenizer
) -> frozenset[int]:
    """All ids that end an answer: the union of what every file of the checkpoint declares.

    Args:
        config: members of config.json; `eos_token_id` counts there and inside `text_config`.
        defaults: of generation_config.json.
        tokenizer: with the eos token of its own files.

    Raises:
        GenerationConfigError: an `eos_token_id` is neither an id nor a list of ids.
    """
    ids = {*defaults.eos_token_ids, *tokenizer.eos_ids}
    ids.update(_token_ids(config.get("eos_token_id"), "eos_token_id in config.json"))
    text_config = config.get("text_config")
    if isinstance(text_config, Mapping):
        where = "text_config.eos_token_id in config.json"
        ids.update(_token_ids(text_config.get("eos_token_id"), where))
    return frozenset(ids)


def _source_path(directory: Path, source: str) -> Path | None:
    if source in ("auto", "none"):
        return find_file(directory, _FILE, GenerationConfigError)
    other = Path(source)
    path = other if other.is_file() else find_file(other, _FILE, GenerationConfigError)
    if path is None:
        raise GenerationConfigError(
            f"no {_FILE} at {source}; give a folder that has one, a file, 'auto' or 'none'"
        )
    return path


def _check(name: str, value: object, path: Path) -> None:
    kind, low, high, inclusive = _BOUNDS[name]
    allowed = int if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        article = "an integer" if kind is int else "a number"
        raise GenerationConfigError(f"{name} in {path} must be {article}, not {value!r}")
    # Written so that NaN fails, and infinity where no highest value is set.
    above_low = low <= value if inclusive else low < value
    below_high = value < high if high == float("inf") else value <= high
    if not (above_low and below_high):
        above = f"{'at least' if inclusive else 'above'} {low:g}"
        below = "" if high == float("inf") else f" and at most {high:g}"
        raise GenerationConfigError(f"{name} in {path} must be {above}{below}, not {value!r}")


def _token_ids(value: object, where: str) -> tuple[int, ...]:
    """An end token field: absent, one id, or a list of ids."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise GenerationConfigError(f"{where} must be a token id or a list of them: {value!r}")
    return tuple(items)
