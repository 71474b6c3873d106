"""Reads a JSON object from a file of a checkpoint, with errors that name the file.

Does not know what the keys mean.
"""

import json
from pathlib import Path
from typing import Final

from pegainfer_core.weights.errors import ConfigError
from pegainfer_core.weights.plain_file import open_plain

__all__ = ["read_json_object"]

_MAX_BYTES: Final = 100_000_000


def read_json_object(path: Path, max_bytes: int = _MAX_BYTES) -> dict[str, object]:
    """Parse a file that holds one JSON object.

    Raises:
        ConfigError: The file is missing, unreadable, too large, not JSON, or not an object.
    """
    try:
        with open_plain(path) as file:
            raw = file.read(max_bytes + 1)
    except OSError as error:
        why = "is a broken link" if path.is_symlink() and not path.exists() else error.strerror
        raise ConfigError(f"{path}: cannot be read: {why}") from error
    if len(raw) > max_bytes:
        raise ConfigError(f"{path}: has more than {max_bytes} bytes")
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds a JSON {type(value).__name__}; expected an object")
    return value
