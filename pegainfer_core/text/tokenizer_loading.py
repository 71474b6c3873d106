"""Finding and reading a checkpoint's tokenizer files.

Knows file formats only; what the tokenizer is used for is not its business.
"""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

import tokenizers

from pegainfer_core.text.errors import TokenizerError
from pegainfer_core.text.json_file import find_file

__all__ = ["TokenizerLoader", "load_backend"]

#: Reads one other format; returns None for a folder that lacks its files.
TokenizerLoader = Callable[[Path], tokenizers.Tokenizer | None]

# Any of these lets transformers build a tokenizer that has no tokenizer.json.
_SLOW_FILES = ("vocab.json", "tokenizer.model", "tiktoken.model", "vocab.txt")


def load_backend(directory: Path, loaders: Sequence[TokenizerLoader]) -> tokenizers.Tokenizer:
    """Read tokenizer.json; without one ask `loaders`, then transformers where it is installed.

    Raises:
        TokenizerError: nothing in the folder can be read; the message names the files.
    """
    if not directory.is_dir():
        raise TokenizerError(f"{directory} is not a folder; give the folder of a checkpoint")
    path = find_file(directory, "tokenizer.json", TokenizerError)
    if path is not None:
        return _read_tokenizer_json(path)
    for loader in loaders:
        backend = loader(directory)
        if backend is not None:
            return backend
    return _load_with_transformers(directory)


def _read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    # The library raises bare Exception for every fault of the file.
    except Exception as exc:
        raise TokenizerError(f"cannot read {path} as a tokenizer: {exc}") from exc


def _load_with_transformers(directory: Path) -> tokenizers.Tokenizer:
    present = [name for name in _SLOW_FILES if (directory / name).exists()]
    if not present:
        raise TokenizerError(
            f"no tokenizer in {directory}: looked for tokenizer.json, {', '.join(_SLOW_FILES)}; "
            "copy the tokenizer files of the model into the folder"
        )
    if find_spec("transformers") is None:
        raise TokenizerError(
            f"{directory} has {', '.join(present)} but no tokenizer.json; "
            "install transformers to convert it: pip install 'pegainfer[hf]'"
        )
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(str(directory), local_files_only=True)
    # Whatever goes wrong in there, the user needs the folder's name and the cause in one line.
    except Exception as exc:
        raise TokenizerError(
            f"transformers cannot load the tokenizer in {directory}: {exc}"
        ) from exc
    backend = getattr(loaded, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise TokenizerError(
            f"{type(loaded).__name__} in {directory} has no fast version; "
            "convert it to tokenizer.json"
        )
    return backend
