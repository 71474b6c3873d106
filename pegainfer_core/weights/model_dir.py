"""Finds the folder of a checkpoint: a plain folder, or one in a Hugging Face cache.

Only looks at the disk, never at the network, and never opens a config or a weight file.
"""

import os
import re
from pathlib import Path
from typing import Final

from pegainfer_core.weights.errors import ConfigError

__all__ = ["hub_cache_dir", "resolve_model_dir"]

_REPO: Final = re.compile(r"[A-Za-z0-9][\w.\-]*(/[A-Za-z0-9][\w.\-]*)?")
_REVISION: Final = re.compile(r"[\w\-][\w.\-]*(/[\w\-][\w.\-]*)*")
#: Files a server may need; a broken link to anything else, such as a README, does no harm.
_NEEDED: Final = (".json", ".safetensors", ".model", ".tiktoken", ".jinja", ".txt")


def hub_cache_dir() -> Path:
    """The Hugging Face cache: $HF_HUB_CACHE, else $HF_HOME/hub, else the default in ~/.cache."""
    if explicit := os.environ.get("HF_HUB_CACHE"):
        return Path(explicit).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache_home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache_home).expanduser() / "huggingface" / "hub"


def resolve_model_dir(path_or_repo: str | os.PathLike[str], revision: str | None = None) -> Path:
    """Turn what the user gave into the folder that holds config.json and the weights.

    Args:
        path_or_repo: A folder; a snapshot folder or a `models--owner--name` folder of a Hugging
            Face cache; or a repo id `owner/name`, looked up in the cache. A folder wins over a
            repo id of the same spelling.
        revision: Commit or ref name of a cached repo (default: `main`).

    Returns:
        The folder. Links in it are left as they are.

    Raises:
        ConfigError: There is no such folder, repo or revision, or a file in it is a broken link.
    """
    text = os.fspath(path_or_repo)
    path = Path(text).expanduser()
    if not text:
        raise ConfigError("the model path is empty; give a checkpoint folder or a repo id")
    if _is_dir(path):
        return _from_folder(path, revision)
    if path.exists():
        raise ConfigError(f"{path} is a file; give the checkpoint folder that holds config.json")
    if not _REPO.fullmatch(text):
        raise ConfigError(f"{path} does not exist; give a checkpoint folder or a repo id")
    cache = hub_cache_dir()
    repo_dir = cache / f"models--{text.replace('/', '--')}"
    if not _is_dir(repo_dir):
        raise ConfigError(
            f"{text} is neither a folder nor a repo in the cache {cache}; nothing is downloaded "
            f"here: fetch it first (hf download {text}) or give a folder"
        )
    return _from_repo(repo_dir, revision)


def _is_dir(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise ConfigError(f"{path} cannot be looked at: {error.strerror}") from error


def _from_folder(path: Path, revision: str | None) -> Path:
    if path.name.startswith("models--") and _is_dir(path / "snapshots"):
        return _from_repo(path, revision)
    if revision is not None and path.name != revision:
        raise ConfigError(
            f"revision {revision!r} given, but {path} is a plain folder; "
            "a revision needs a repo id or a models--owner--name folder"
        )
    _refuse_broken_links(path)
    return path


def _from_repo(repo_dir: Path, revision: str | None) -> Path:
    wanted = revision if revision is not None else "main"
    if not _REVISION.fullmatch(wanted):
        raise ConfigError(f"revision {wanted!r} is not a commit or a ref name")
    snapshots = repo_dir / "snapshots"
    if _is_dir(snapshots / wanted):
        commit = wanted
    else:
        commit = _read_ref(repo_dir, wanted)
        if not _is_dir(snapshots / commit):
            raise ConfigError(
                f"{repo_dir / 'refs' / wanted} names snapshot {commit!r}, which {snapshots} lacks; "
                "fetch the model again"
            )
    _refuse_broken_links(snapshots / commit)
    return snapshots / commit


def _read_ref(repo_dir: Path, ref: str) -> str:
    try:
        commit = (repo_dir / "refs" / ref).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if _REVISION.fullmatch(commit) and "/" not in commit:
        return commit
    try:
        present = sorted(entry.name for entry in (repo_dir / "snapshots").iterdir())
    except OSError:
        present = []
    hint = f"give one of {', '.join(present)}" if present else "no snapshot is there either"
    raise ConfigError(f"{repo_dir} has no snapshot and no usable ref {ref!r}; {hint}")


def _refuse_broken_links(folder: Path) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.name.endswith(_NEEDED) and entry.is_symlink() and not os.path.exists(entry.path):
            raise ConfigError(
                f"{entry.path} is a broken link to {os.readlink(entry.path)}; in the folder "
                f"{folder} this file was never fetched or was removed: fetch the model again"
            )
