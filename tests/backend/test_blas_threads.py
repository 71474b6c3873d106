"""The number of compute threads, set while the process runs."""

import subprocess
import sys

import pytest

from pegainfer_core.backend import NumpyBackend
from pegainfer_core.weights import ConfigError

_NUM_THREADS = """
import sys
from pegainfer_core.backend import NumpyBackend
from pegainfer_core.backend.numpy.blas_threads import find_blas_threads
NumpyBackend(int(sys.argv[1]))
print(find_blas_threads().own())
"""


@pytest.mark.parametrize("num_threads", [1, 2])
def test_the_library_takes_the_number(num_threads: int) -> None:
    command = [sys.executable, "-c", _NUM_THREADS, str(num_threads)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout.split() == [str(num_threads)]


def test_no_thread_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="threads is 0"):
        NumpyBackend(0)


def test_another_library_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pegainfer_core.backend.numpy.blas_threads._SPELLINGS", ())
    with pytest.raises(ConfigError, match="without OpenBLAS"):
        NumpyBackend(1)
