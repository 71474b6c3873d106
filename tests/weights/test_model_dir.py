"""Where a checkpoint is found: case C05 and its neighbours."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from pegainfer_core.weights import ConfigError, hub_cache_dir, load_config, resolve_model_dir

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "hub"
    repo = root / "models--o--n"
    (repo / "blobs").mkdir(parents=True)
    (repo / "refs").mkdir()
    snapshot = repo / "snapshots" / SHA
    snapshot.mkdir(parents=True)
    for blob, name, text in (
        ("aaaa", "config.json", json.dumps({"model_type": "qwen3"})),
        ("bbbb", "model.safetensors", "weights"),
    ):
        (repo / "blobs" / blob).write_text(text)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    (repo / "refs" / "main").write_text(SHA)
    monkeypatch.setenv("HF_HUB_CACHE", str(root))
    return root


def snapshot_of(cache: Path) -> Path:
    return cache / "models--o--n" / "snapshots" / SHA


def test_repo_id_is_found_through_refs_main(cache: Path) -> None:
    found = resolve_model_dir("o/n")
    assert found == snapshot_of(cache)
    assert load_config(found) == {"model_type": "qwen3"}


def test_pinned_revision_needs_no_ref(cache: Path) -> None:
    (cache / "models--o--n/refs/main").unlink()
    assert resolve_model_dir("o/n", SHA) == snapshot_of(cache)
    with pytest.raises(ConfigError, match=f"models--o--n.*'main'.*give one of {SHA}"):
        resolve_model_dir("o/n")


def test_named_refs_and_pull_request_refs(cache: Path) -> None:
    refs = cache / "models--o--n/refs"
    (refs / "pr").mkdir()
    for ref in ("v1.0", "pr/3"):
        (refs / ref).write_text(SHA + "\n")
        assert resolve_model_dir("o/n", ref) == snapshot_of(cache)


def test_snapshot_folder_and_repo_folder(cache: Path) -> None:
    assert resolve_model_dir(snapshot_of(cache)) == snapshot_of(cache)
    assert resolve_model_dir(snapshot_of(cache), SHA) == snapshot_of(cache)
    assert resolve_model_dir(cache / "models--o--n") == snapshot_of(cache)
    assert resolve_model_dir(cache / "models--o--n", SHA) == snapshot_of(cache)


def test_moved_cache(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = tmp_path / "elsewhere" / "hub"
    moved.parent.mkdir()
    shutil.move(cache, moved)
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(moved.parent))
    assert load_config(resolve_model_dir("o/n")) == {"model_type": "qwen3"}
    assert load_config(resolve_model_dir(snapshot_of(moved))) == {"model_type": "qwen3"}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_dangling_link_is_named(cache: Path, name: str) -> None:
    (snapshot_of(cache) / name).resolve().unlink()
    for given in ("o/n", snapshot_of(cache)):
        with pytest.raises(ConfigError) as caught:
            resolve_model_dir(given)
        assert name in str(caught.value)
        assert str(snapshot_of(cache)) in str(caught.value)


def test_dangling_link_to_a_readme_does_no_harm(cache: Path) -> None:
    (snapshot_of(cache) / "README.md").symlink_to("../../blobs/gone")
    assert resolve_model_dir("o/n") == snapshot_of(cache)


def test_missing_repo_names_repo_and_cache(cache: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model_dir("o/other")
    assert "o/other" in str(caught.value)
    assert str(cache) in str(caught.value)


def test_ref_to_a_missing_snapshot(cache: Path) -> None:
    (cache / "models--o--n/refs/main").write_text("f" * 40)
    with pytest.raises(ConfigError, match="refs/main names snapshot 'ffff"):
        resolve_model_dir("o/n")


@pytest.mark.parametrize("revision", ["../../../etc", "/etc", "a/../b", "", "."])
def test_revision_cannot_leave_the_cache(cache: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match="revision"):
        resolve_model_dir("o/n", revision)


def test_ref_cannot_leave_the_cache(cache: Path) -> None:
    (cache / "models--o--n/refs/main").write_text("../../..")
    with pytest.raises(ConfigError, match="no usable ref 'main'"):
        resolve_model_dir("o/n")


def test_plain_folder_wins_over_repo_id(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "o" / "n").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    assert resolve_model_dir("o/n") == Path("o/n")
    with pytest.raises(ConfigError, match="plain folder"):
        resolve_model_dir("o/n", SHA)


def test_faulty_paths(tmp_path: Path, cache: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{}")
    with pytest.raises(ConfigError, match="is a file; give the checkpoint folder"):
        resolve_model_dir(file)
    with pytest.raises(ConfigError, match="does not exist"):
        resolve_model_dir(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="empty"):
        resolve_model_dir("")
    with pytest.raises(ConfigError, match=r"no config\.json"):
        load_config(resolve_model_dir(tmp_path / "hub"))


def test_cache_folder_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/h")
    assert hub_cache_dir() == Path("/h/.cache/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/a")
    assert hub_cache_dir() == Path("/a/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "~/b")
    assert hub_cache_dir() == Path("/h/b")
