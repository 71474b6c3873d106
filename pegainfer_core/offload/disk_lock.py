"""Keeps a second engine out of a folder. Knows nothing of what lies in it."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from typing import TYPE_CHECKING

from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


class FolderLock:
    """An exclusive lock on a folder, which ends with the process whatever happens to it.

    Raises:
        ConfigError: Someone has it; the message names them and this process.
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 200, 0).decode(errors="replace").strip()
            self.release()
            if not isinstance(error, BlockingIOError):
                raise ConfigError(f"{path} cannot be locked: {error.strerror}") from error
            raise ConfigError(
                f"{folder} is in use by {holder or 'another engine'}, so that {_self()} cannot use "
                "it too; give one of them another --kv-offload-disk-path"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{_self()} since {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)

    def release(self) -> None:
        """Let others in. The file stays: removing it could take it from whoever locks it next."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _self() -> str:
    return f"process {os.getpid()} of {socket.gethostname()}"
