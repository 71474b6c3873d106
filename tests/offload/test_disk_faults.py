"""What befalls a disk tier: it dies, its bytes are altered, its disk is full or at fault."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pegainfer_core.offload import GuardedTier, disk_folder
from pegainfer_core.offload.direct_file import DirectFile
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.offload.disk_segment import DiskSegment

from .disk_bench import (
    LAYOUT,
    ROOT,
    WAIT_S,
    blank,
    held,
    keys,
    load,
    open_disk,
    place,
    python,
    reopened,
    save,
    sealed,
    segments,
)


def overwrite(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def test_a_killed_process_leaves_no_wrong_record(tmp_path: Path) -> None:
    """`load` compares every byte; slots are reused all the time, since 40 records fit."""
    num_found = 0
    for delay_s in (0.0, 0.003, 0.011, 0.023):
        with subprocess.Popen(
            python(str(tmp_path)), cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(7):
                batch = int(process.stdout.readline())
            time.sleep(delay_s)
            process.send_signal(signal.SIGKILL)
            batch = max([batch, *map(int, process.stdout.read().split())])
        tier = open_disk(tmp_path, records=40)
        found = load(tier, range(8 * batch + 8))
        assert set(range(8 * batch - 32, 8 * batch)) <= set(found), "told as saved, but lost"
        assert len(found) <= 40
        num_found += len(found)
        tier.close()
    assert num_found >= 4 * 32


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["nothing", "half", "all"])
@pytest.mark.parametrize("step", range(3), ids=["wipe", "record", "header"])
def test_no_moment_to_die_leaves_a_wrong_record(
    tmp_path: Path, small_segments: None, monkeypatch: pytest.MonkeyPatch, step: int, share: float
) -> None:
    """The disk stops in the middle of replacing records: after so many writes, and part of one."""
    tier = open_disk(tmp_path, records=8)
    assert all(save(tier, range(8)))
    writes = 0
    real = DirectFile.write

    def write(file: DirectFile, offset: int, buffers: list[memoryview]) -> None:
        nonlocal writes
        writes += 1
        if writes <= step:
            real(file, offset, buffers)
            return
        if writes == step + 1:
            joined = b"".join(buffers)
            with file.path.open("r+b") as plain:
                plain.seek(offset)
                plain.write(joined[: int(len(joined) * share)])
        raise OSError(errno.EIO, "died")

    monkeypatch.setattr(DirectFile, "write", write)
    with pytest.raises(OSError, match="died"):
        save(tier, range(8, 12))
    assert writes >= step + 1
    assert held(tier, range(12)) == [0, 1, 2, 3], "what was not finished is not held"
    monkeypatch.undo()
    tier.close()  # Writes nothing.
    again = open_disk(tmp_path, records=8)
    found = load(again, range(12))
    wiped, marked = {0.0: [4, 5, 6, 7], 0.5: [6, 7]}, {0.5: [10, 11], 1.0: [8, 9, 10, 11]}
    replaced = (wiped, {}, marked)[step].get(share, [])
    assert found == [0, 1, 2, 3, *replaced]
    again.close()


def test_altered_bytes_are_found_by_the_guard(tier: DiskTier) -> None:
    save(tier, range(8))
    (path,) = segments(tier)
    for number in (2, 5):
        overwrite(path, 9 * 4096 + number * LAYOUT.record_bytes + 77 * number, b"\xee" * 3)
    guard = GuardedTier("disk", tier, {0: LAYOUT})
    assert guard.load(blank(range(8))).outcome.result(WAIT_S) == [
        number not in (2, 5) for number in range(8)
    ]
    assert guard.stats().num_corrupt == 2
    deadline_s = time.monotonic() + WAIT_S
    while held(tier, range(8)) != [0, 1, 3, 4, 6, 7]:
        assert time.monotonic() < deadline_s
        time.sleep(0.005)
    assert guard.close()
    again = open_disk(tier.folder.parent)
    assert held(again, range(8)) == [0, 1, 3, 4, 6, 7]
    again.close()


def test_a_damaged_header_costs_its_record(tier: DiskTier) -> None:
    save(tier, range(8))
    overwrite(segments(tier)[0], 4096 * 4 + 30, b"\x01")
    again = reopened(tier)
    assert load(again, range(8)) == [0, 1, 2, 4, 5, 6, 7]
    assert save(again, [3]) == [True] and load(again, range(8)) == list(range(8))
    again.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: overwrite(path, 12, b"\x77"),
        lambda path: os.truncate(path, path.stat().st_size - 1),
        lambda path: os.truncate(path, 0),
        lambda path: path.rename(path.with_suffix(".tmp")),
    ],
    ids=["superblock", "cut", "empty", "unfinished"],
)
def test_a_damaged_file_costs_its_records(
    tier: DiskTier, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    save(tier, range(16))
    first, second = segments(tier)
    damage(first)
    again = reopened(tier)
    assert load(again, range(16)) == list(range(8, 16))
    assert "is damaged or unfinished; deleted" in caplog.text
    assert segments(again) == [second] and not list(again.folder.glob("*.tmp"))
    save(again, range(8))
    assert load(again, range(16)) == list(range(16))
    again.close()


def test_a_file_cut_short_while_in_use_costs_its_records(tier: DiskTier) -> None:
    save(tier, range(8))
    os.truncate(segments(tier)[0], 9 * 4096 + 3 * LAYOUT.record_bytes)
    assert load(tier, [1]) == [1]
    assert load(tier, [5, 6]) == []
    assert held(tier, range(8)) == [0, 1, 2, 3, 4, 7] and tier.stats().num_corrupt == 2


def test_a_disk_without_room_keeps_what_fits(
    tier: DiskTier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save(tier, range(8))

    def full(fd: int, offset: int, count: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert save(tier, range(8, 12)) == [True] * 4
    assert load(tier, range(12)) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert "does not grow: [Errno 28] No space left on device" in caplog.text
    assert not list(tier.folder.glob("*.tmp"))


def test_a_disk_without_any_room_keeps_nothing(tmp_path: Path) -> None:
    """A real limit: no file of this process may be larger than a MiB."""
    code = (
        "import resource, sys; from pathlib import Path; from tests.offload.disk_bench import *;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20));"
        "tier = open_disk(Path(sys.argv[1])); print(save(tier, range(3)), load(tier, range(3)));"
        "tier.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[False, False, False] []"
    assert "does not grow: [Errno 27] File too large" in done.stderr


def test_room_for_others_is_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tier = DiskTier(place(tmp_path), reserve_bytes=1 << 60)
    assert save(tier, range(3)) == [False] * 3
    assert "would be left free" in caplog.text
    tier.close()


def test_a_file_system_that_cannot_allocate_has_files_with_holes(
    tier: DiskTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", failing(errno.EOPNOTSUPP))
    assert save(tier, range(9)) == [True] * 9 and load(tier, range(9)) == list(range(9))


def test_a_buffer_that_cannot_be_filled_fails_the_call(tier: DiskTier) -> None:
    save(tier, [0])
    (record,) = blank([0])
    with pytest.raises(Exception, match=r"read-?write|read-?only|writable"):
        tier.load([record._replace(buffer=record.buffer.toreadonly())]).result(WAIT_S)
    assert load(tier, [0]) == [0]


def test_an_unforeseen_error_ends_its_call(tier: DiskTier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tier would wait for it in `close` for ever."""

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("a bug")

    save(tier, [0, 1])
    for owner, name, call in (
        (disk_folder.DiskFolder, "grow", lambda: tier.save(sealed(range(10, 26)))),
        (DiskSegment, "write", lambda: tier.save(sealed([6]))),
        (DiskSegment, "read", lambda: tier.load(blank([0]))),
        (DiskSegment, "wipe", lambda: tier.drop(keys([1]))),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            with pytest.raises(ZeroDivisionError):
                call().result(WAIT_S)
    assert load(tier, [0]) == [0]


def failing(code: int) -> Callable[..., None]:
    def write(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    return write


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_write_without_room_is_no_failure(
    tier: DiskTier, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    save(tier, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(DirectFile, "write", failing(code))
        assert save(tier, range(4)) == [True, True, False, False]
    assert held(tier, range(4)) == [0, 1]
    assert save(tier, range(4)) == [True] * 4 and load(tier, range(4)) == [0, 1, 2, 3]


def test_a_faulty_disk_fails_the_call(tier: DiskTier, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tier, range(2))
    with monkeypatch.context() as patch:
        patch.setattr(DirectFile, "write", failing(errno.EIO))
        patch.setattr(DirectFile, "read", failing(errno.EIO))
        for call in (tier.save(blank([5])), tier.load(blank([0])), tier.drop(keys([1]))):
            with pytest.raises(OSError, match="Input/output error"):
                call.result(WAIT_S)
    assert held(tier, [0, 1, 5]) == [0]
    assert load(tier, [0]) == [0] and save(tier, [1, 5]) == [True, True]
    assert load(tier, [0, 1, 5]) == [0, 1, 5]
