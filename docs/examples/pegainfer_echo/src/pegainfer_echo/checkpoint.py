"""Writes a checkpoint folder for echo: a config, and a tokenizer whose ids are bytes.

Run it with `python -m pegainfer_echo.checkpoint FOLDER`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pegainfer_core import testing

CONFIG = {"model_type": "echo", "vocab_size": 261, "max_position_embeddings": 4096}
CHAT_TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def write_checkpoint(folder: Path) -> None:
    """Write the files; the folder is made if it is missing."""
    testing.byte_tokenizer(folder, chat_template=CHAT_TEMPLATE)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
