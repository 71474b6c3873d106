"""Reading the small JSON files that lie beside a checkpoint's weights.

Knows nothing of their contents.
"""

import json
from pathlib import Path

from pegainfer_core.text.errors import TextError

__all__ = ["find_file", "read_json_object", "read_text"]


def find_file(directory: Path, name: str, error: type[TextError]) -> Path | None:
    """Path of `name` in `directory`, or None when there is no such entry.

    Links that leave the folder are followed (the Hugging Face cache is made of them); a link to
    nothing raises `error` with both names, because silence would look like a missing file.
    """
    path = directory / name
    if path.is_file():
        return path
    if path.is_symlink():
        raise error(f"{path} is a link to {path.readlink()}, which does not exist")
    return None


def read_text(path: Path, error: type[TextError]) -> str:
    """Text of a UTF-8 file; `error` names the file when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise error(f"cannot read {path}: {exc}") from exc


def read_json_object(path: Path, error: type[TextError]) -> dict[str, object]:
    """Members of the JSON object in a file; `error` names the file when it holds none."""
    try:
        value = json.loads(read_text(path, error))
    except (json.JSONDecodeError, RecursionError) as exc:
        raise error(f"{path} is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise error(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value
