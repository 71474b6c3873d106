"""Opens files that may be anything, as their paths come from users, and from clients, too.

Does not know what they hold.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from pegainfer_core.weights.errors import ConfigError

__all__ = ["open_plain"]


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    A device may have no end, and a pipe nobody at its other one.

    Raises:
        ConfigError: It is no regular file, nor a link to one.
        OSError: It cannot be opened.
    """
    file = open(path, "rb", opener=_open_at_once)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ConfigError(f"{path}: is not a regular file")
    return file


def _open_at_once(path: str, flags: int) -> int:
    """Without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)
