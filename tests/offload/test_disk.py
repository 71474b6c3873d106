"""The disk tier beyond the contract: restarts, owners, limits, and how it reads and writes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pegainfer_core.kv import TierPlace
from pegainfer_core.offload.direct_file import allows_direct
from pegainfer_core.offload.disk import DiskTier
from pegainfer_core.weights import ConfigError

from .disk_bench import (
    ROOT,
    WAIT_S,
    blank,
    held,
    key,
    load,
    open_disk,
    place,
    python,
    reopened,
    save,
    sealed,
    segments,
)


def test_records_outlive_their_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tests.offload.disk_bench import *;"
        "tier = open_disk(Path(sys.argv[1])); print(save(tier, range(20))); tier.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str([True] * 20)
    tier = open_disk(tmp_path)
    assert load(tier, range(21)) == list(range(20))
    tier.close()


def test_close_finishes_what_was_taken(tier: DiskTier) -> None:
    saves = [tier.save(sealed(range(start, start + 10))) for start in range(0, 200, 10)]
    tier.close()
    assert [future.result(0) for future in saves] == [[True] * 10] * 20
    with pytest.raises(RuntimeError, match="closed"):
        tier.save(sealed([0])).result(0)
    again = open_disk(tier.folder.parent)
    assert held(again, range(200)) == list(range(200))
    again.close()


def test_other_data_is_left_alone(tmp_path: Path) -> None:
    tier = open_disk(tmp_path)
    save(tier, range(4))
    other = open_disk(tmp_path, identity="cd" * 32)
    assert held(other, range(4)) == []
    other.close()
    tier.close()
    later = tmp_path / f"v2-{'ab' * 16}"
    later.mkdir()
    (later / "g0-000000.seg").write_bytes(b"of a version to come")
    again = open_disk(tmp_path)
    assert held(again, range(4)) == [0, 1, 2, 3]
    assert (later / "g0-000000.seg").read_bytes() == b"of a version to come"
    again.close()


def test_records_are_private(tier: DiskTier) -> None:
    save(tier, [0])
    assert tier.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in tier.folder.iterdir()} == {0o600}


def test_two_engines_do_not_share_a_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        python(str(tmp_path)), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ConfigError) as caught:
            open_disk(tmp_path)
        process.send_signal(signal.SIGKILL)
    message = str(caught.value)
    assert f"in use by process {process.pid} of " in message
    assert f"so that process {os.getpid()} of " in message
    assert message.endswith("give one of them another --kv-offload-disk-path")
    open_disk(tmp_path).close()


def test_one_process_does_not_open_a_folder_twice(tier: DiskTier) -> None:
    with pytest.raises(ConfigError, match="in use by process"):
        open_disk(tier.folder.parent)
    save(tier, [0])
    assert load(tier, [0]) == [0]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: TierPlace(identity="ab", record_bytes={0: 4096}), "needs a folder"),
        (lambda path: place(path, records=0), r"--kv-offload-disk-gib .* too little for records"),
        (lambda path: place(Path(__file__) / "kv"), r"test_disk\.py/kv/.* Not a directory; give"),
    ],
)
def test_impossible_places_are_refused(
    tmp_path: Path, make: Callable[[Path], TierPlace], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        DiskTier(make(tmp_path))


def test_the_record_used_longest_ago_goes(tmp_path: Path, small_segments: None) -> None:
    tier = open_disk(tmp_path, records=8)
    save(tier, range(8))
    load(tier, [7])
    held(tier, [6])
    save(tier, [5])
    save(tier, range(8, 12))
    assert load(tier, range(12)) == [0, 5, 6, 7, 8, 9, 10, 11]
    assert tier.stats().num_evicted == 4
    tier.close()


def test_a_prefix_loses_its_end_first(tmp_path: Path, small_segments: None) -> None:
    """A page is of no use without those before it."""
    tier = open_disk(tmp_path, records=8)
    save(tier, range(6))
    save(tier, range(10, 14))
    assert held(tier, range(6)) == [0, 1, 2, 3]
    load(tier, range(4))
    save(tier, [20])
    again = reopened(tier, records=8)
    assert held(again, range(6)) == [0, 1, 2, 3]
    again.close()


def test_the_order_of_writing_outlives_a_restart(tmp_path: Path, small_segments: None) -> None:
    tier = open_disk(tmp_path, records=8)
    for number in (3, 1, 2, 0, 7, 6, 5, 4):
        save(tier, [number])
    again = reopened(tier, records=8)
    save(again, [8])
    save(again, [9])
    assert held(again, range(10)) == [0, 2, 4, 5, 6, 7, 8, 9]
    again.close()


def test_a_smaller_limit_deletes_the_oldest_files(tier: DiskTier) -> None:
    save(tier, range(8))
    save(tier, range(8, 16))
    save(tier, range(16, 24))
    again = reopened(tier, records=17)
    assert load(again, range(24)) == list(range(8, 24)) and len(segments(again)) == 2
    again.close()


def test_files_stay_within_the_limit(tmp_path: Path, small_segments: None) -> None:
    tier = open_disk(tmp_path, records=13)
    save(tier, range(30))
    limit = tier.stats().capacity_bytes
    assert limit is not None
    assert sum(path.stat().st_size for path in segments(tier)) <= limit
    assert tier.stats().num_records == 13
    tier.close()


def test_neighbours_are_moved_by_one_call(tier: DiskTier, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"preadv": 0, "pwritev": 0}
    for name in calls:
        real = getattr(os, name)

        def counted(fd: int, buffers: object, offset: int, real=real, name=name) -> int:  # type: ignore[no-untyped-def]
            calls[name] += 1
            return real(fd, buffers, offset)  # type: ignore[no-any-return]

        monkeypatch.setattr(os, name, counted)
    save(tier, range(24))
    assert calls == {"preadv": 0, "pwritev": 6}, "three files of eight: records, then headers"
    assert load(tier, range(24)) == list(range(24))
    assert calls["preadv"] == 3


def test_the_page_cache_is_passed_by_where_that_is_possible(tier: DiskTier) -> None:
    save(tier, [0])
    assert tier.direct == allows_direct(tier.folder)
    fds = [
        int(fd)
        for fd in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{fd}")
        and os.readlink(f"/proc/self/fd/{fd}").startswith(str(tier.folder))
        and os.readlink(f"/proc/self/fd/{fd}").endswith(".seg")
    ]
    assert fds
    for fd in fds:
        assert bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT) == tier.direct


def test_a_file_system_without_direct_access_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.open

    def refusing(path: object, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    tier = open_disk(tmp_path)
    assert not tier.direct and "does not allow direct access" in caplog.text
    assert save(tier, range(9)) == [True] * 9 and load(tier, range(9)) == list(range(9))
    tier.close()


def test_a_key_of_an_unknown_group_is_a_miss(tier: DiskTier) -> None:
    odd = key(0)._replace(group=7)
    record = blank([0])[0]._replace(key=odd)
    assert tier.save([record]).result(WAIT_S) == [False]
    assert tier.load([record]).result(WAIT_S) == [False]
    assert tier.contains([odd]).result(WAIT_S) == [False]
    assert tier.drop([odd]).result(WAIT_S) is None
