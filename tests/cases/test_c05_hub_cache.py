"""C05: a model is served from the Hugging Face cache as it lies there, with the network cut off.

Seen elsewhere: links into `blobs` are refused, a start asks the network first, or a pinned revision
is not found because no ref names it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import time
from pathlib import Path

import pytest

from pegainfer_core.weights import ConfigError
from tests.cases.answers import greedy, run
from tests.cases.conftest import F3, LoadLLM
from tests.hf import cases, golden

SHA = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
PROMPT = golden.load(F3).prompts[37]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["one file", "shards"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds F3 as the repo `o/n`; every file is a link into `blobs`."""
    plain = tmp_path / "plain"
    if request.param == "shards":
        cases.tiny_qwen3(plain, **cases.CASES[F3], shards=3)
    else:
        cases.build(F3, plain)
    repo = tmp_path / "hub" / "models--o--n"
    snapshot = repo / "snapshots" / SHA
    for folder in (repo / "blobs", repo / "refs", snapshot):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(SHA)
    for path in plain.iterdir():
        blob = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(repo / "blobs" / blob)
        (snapshot / path.name).symlink_to(f"../../blobs/{blob}")
    plain.rmdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def snapshot_of(cache: Path) -> Path:
    return cache / "models--o--n" / "snapshots" / SHA


def assert_answers(load: LoadLLM, model: str | Path, **options: str) -> None:
    (output,) = run(load(model, **options), [PROMPT.prompt.tolist()], greedy(64))
    assert output.token_ids == PROMPT.greedy.tolist()


def test_a_repo_id(cache: Path, load: LoadLLM) -> None:
    assert_answers(load, "o/n")


def test_b_revision_without_a_ref(cache: Path, load: LoadLLM) -> None:
    (cache / "models--o--n" / "refs" / "main").unlink()
    assert_answers(load, "o/n", revision=SHA)
    with pytest.raises(ConfigError, match=rf"models--o--n.*'main'.*{SHA}"):
        load("o/n")


def test_c_snapshot_folder(cache: Path, load: LoadLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_answers(load, snapshot_of(cache))
    monkeypatch.chdir(cache)
    assert_answers(load, os.path.relpath(snapshot_of(cache)))


def test_d_moved_cache(
    cache: Path, tmp_path: Path, load: LoadLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "elsewhere" / "deep"
    home.mkdir(parents=True)
    moved = Path(shutil.move(cache, home / "hub"))
    assert_answers(load, snapshot_of(moved))
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(home))
    assert_answers(load, "o/n")


def test_e_dangling_links(cache: Path, load: LoadLLM) -> None:
    for link in sorted(snapshot_of(cache).iterdir()):
        blob = link.resolve()
        aside = blob.rename(blob.with_suffix(".aside"))
        for given in ("o/n", snapshot_of(cache)):
            started_s = time.monotonic()
            with pytest.raises(ConfigError) as caught:
                load(given)
            assert time.monotonic() - started_s < 20
            assert str(link) in str(caught.value), "the file, and with it the cache folder"
        aside.rename(blob)
    assert_answers(load, "o/n")


def test_e_a_file_that_was_never_fetched(cache: Path, load: LoadLLM) -> None:
    """Partial downloads have no link at all for what is missing."""
    for link in sorted(snapshot_of(cache).glob("*.safetensors")):
        blob = os.readlink(link)
        link.unlink()
        with pytest.raises(ConfigError, match=rf"{snapshot_of(cache)}.*(safetensors|weights)"):
            load("o/n")
        link.symlink_to(blob)


def test_f_missing_repo(cache: Path, load: LoadLLM) -> None:
    started_s = time.monotonic()
    with pytest.raises(ConfigError, match=rf"o/missing .*{cache}"):
        load("o/missing")
    assert time.monotonic() - started_s < 20
