"""The disk tier: records in files of slots, found again after a restart.

Knows bytes and keys only. Holds no record in memory: an index of keys, made from the files' headers
at the start, is all there is. That a record is unaltered is proven by its own trailer, which the
guard reads.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pegainfer_core.kv import TierStats
from pegainfer_core.offload.direct_file import allows_direct
from pegainfer_core.offload.disk_folder import DiskFolder
from pegainfer_core.offload.disk_lock import FolderLock
from pegainfer_core.offload.disk_segment import DISK_VERSION, SegmentShape
from pegainfer_core.offload.disk_store import DiskStore
from pegainfer_core.offload.io_threads import IoThreads
from pegainfer_core.offload.transfer import Transfer
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pegainfer_core.kv import PageKey, TierPlace, TierRecord

logger = logging.getLogger(__name__)

_NUM_READERS: Final = 8
_NUM_WRITERS: Final = 4
_DEFAULT_CAPACITY_BYTES: Final = 64 << 30
_RESERVE_BYTES: Final = 1 << 30
T = TypeVar("T")


class DiskTier:
    """Implements `KvTier` in one folder.

    Attributes:
        folder: Where its files lie: `<path>/v<version>-<identity>`.
        direct: Whether reads and writes go past the page cache.
    """

    def __init__(self, place: TierPlace, *, reserve_bytes: int = _RESERVE_BYTES) -> None:
        """Open the folder, or make it.

        Args:
            place: Where, for which model, and how much.
            reserve_bytes: Free space to leave on the disk.

        Raises:
            ConfigError: The folder cannot be used, is used by another engine, or the capacity is
                less than one record.
        """
        if place.path is None:
            raise ConfigError("the disk tier needs a folder; give --kv-offload-disk-path")
        self.folder = Path(place.path) / f"v{DISK_VERSION}-{place.identity[:32]}"
        self._capacity_bytes = place.capacity_bytes or _DEFAULT_CAPACITY_BYTES
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder_lock = FolderLock(self.folder)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        try:
            self.direct = allows_direct(self.folder)
            self._store = DiskStore(self._folders(place, reserve_bytes))
        except OSError as error:
            self._folder_lock.release()
            raise _unusable(self.folder, error) from error
        except BaseException:
            self._folder_lock.release()
            raise
        self._gate = threading.Lock()
        self._closed = False
        self._under_way: set[Future[Any]] = set()
        self._readers = IoThreads(_NUM_READERS, "pegainfer-kv-disk-read")
        self._writers = IoThreads(_NUM_WRITERS, "pegainfer-kv-disk-write")
        self._tell()

    def contains(self, keys: Sequence[PageKey]) -> Future[list[bool]]:
        """As in `KvTier`; answered from memory. Keys that are held count as used."""
        return _done(_closed()) if self._closed else _done(self._store.contains(keys))

    def save(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """As in `KvTier`; a full disk makes it False, a faulty one an OSError."""
        if not records:
            return _done([])
        records = list(records)
        transfer = Transfer(len(records))

        def plan() -> None:
            if not transfer.begin():
                return
            try:
                pieces = self._store.plan_save(records, transfer)
            except Exception as error:  # Whatever it is, the call must end.
                transfer.abort(error)
                return
            for piece in pieces:
                self._writers.post(partial(self._store.write, piece))

        return self._begun(transfer.future, self._writers, plan)

    def load(self, records: Sequence[TierRecord]) -> Future[list[bool]]:
        """As in `KvTier`; records in neighbouring slots are read at once."""
        if not records:
            return _done([])
        transfer = Transfer(len(records))
        with self._gate:
            if self._closed:
                return _done(_closed())
            self._note(transfer.future)
        for piece in self._store.plan_load(records, transfer):
            self._readers.post(partial(self._store.read, piece))
        return transfer.future

    def drop(self, keys: Sequence[PageKey]) -> Future[None]:
        """As in `KvTier`."""
        future: Future[None] = Future()
        keys = list(keys)

        def drop() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                self._store.drop(keys)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        return self._begun(future, self._writers, drop)

    def stats(self) -> TierStats:
        """As in `KvTier`. Damage that only a trailer shows is counted by the guard."""
        num_records, used_bytes, num_evicted, num_corrupt = self._store.counts()
        return TierStats(
            num_records=num_records,
            used_bytes=used_bytes,
            capacity_bytes=self._capacity_bytes,
            num_evicted=num_evicted,
            num_corrupt=num_corrupt,
        )

    def close(self) -> None:
        """As in `KvTier`; every call that was taken is finished first."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            under_way = list(self._under_way)
        wait(under_way)  # Their pieces are posted by jobs, which `join` would be in the way of.
        self._writers.join()
        self._readers.join()
        self._store.close()
        self._folder_lock.release()

    def _begun(self, future: Future[T], threads: IoThreads, job: Callable[[], None]) -> Future[T]:
        """Have a call's job done, unless the tier is closed."""
        with self._gate:
            if self._closed:
                return _done(_closed())
            self._note(future)
        threads.post(job)
        return future

    def _note(self, future: Future[T]) -> None:
        """Let `close` wait for a call."""
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)

    def _folders(self, place: TierPlace, reserve_bytes: int) -> dict[int, DiskFolder]:
        """Groups get slots as the place says: a prefix needs records of every group."""
        record_bytes_sum = sum(place.record_bytes.values())
        if self._capacity_bytes < 2 * record_bytes_sum + (1 << 16):
            raise ConfigError(
                f"--kv-offload-disk-gib {self._capacity_bytes / 2**30:g} is too little for records "
                f"of {record_bytes_sum / 2**20:.2f} MiB; give more"
            )
        weights = {g: size * place.ratios.get(g, 1.0) for g, size in place.record_bytes.items()}
        total_weight = sum(weights.values())
        identity = hashlib.sha256(place.identity.encode()).digest()
        folders = {}
        for group, record_bytes in place.record_bytes.items():
            shape = SegmentShape(
                group=group, record_bytes=record_bytes, num_slots=1, identity=identity
            )
            folders[group] = DiskFolder(
                self.folder,
                shape,
                int(self._capacity_bytes * (weights[group] / total_weight)),
                direct=self.direct,
                reserve_bytes=reserve_bytes,
            )
        return folders

    def _tell(self) -> None:
        stats = self.stats()
        logger.info(
            "KV offload to %s: %d records (%.2f GiB) are there",
            *(self.folder, stats.num_records, stats.used_bytes / 2**30),
        )
        if not self.direct:
            logger.warning(
                "%s does not allow direct access, so that KV offload to disk takes memory of the "
                "page cache; another --kv-offload-disk-path may do better",
                self.folder,
            )


def _done(result: T | Exception) -> Future[T]:
    future: Future[T] = Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


def _closed() -> RuntimeError:
    return RuntimeError("the disk tier is closed")


def _unusable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{folder} cannot be used for KV offload: {error.strerror or error}; "
        "give another --kv-offload-disk-path"
    )
