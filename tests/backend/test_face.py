"""The package's public face: complete, and light until something heavy is used."""

import subprocess
import sys

import pytest

import pegainfer_core.backend


def test_every_public_name_resolves() -> None:
    for name in pegainfer_core.backend.__all__:
        assert getattr(pegainfer_core.backend, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Tensr'"):
        _ = pegainfer_core.backend.Tensr  # type: ignore[attr-defined]


def test_light_names_do_not_import_numpy() -> None:
    code = (
        "import sys; from pegainfer_core.backend import DType, KvLayout; "
        "assert 'numpy' not in sys.modules; from pegainfer_core.backend import Ops, NumpyBackend; "
        "assert 'numpy' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
