"""Reads a JSON object from a file of a checkpoint, with errors that name the file.

Does not know what the keys mean.
"""

import json
from pathlib import Path

from pegainfer_core.weights.errors import ConfigError

__all__ = ["read_json_object"]


def read_json_object(path: Path) -> dict[str, object]:
    """Parse a file that holds one JSON object.

    Raises:
        ConfigError: The file is missing, unreadable, not JSON, or not an object.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        why = "is a broken link" if path.is_symlink() and not path.exists() else error.strerror
        raise ConfigError(f"{path}: cannot be read: {why}") from error
    try:
        value: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds a JSON {type(value).__name__}; expected an object")
    return value
