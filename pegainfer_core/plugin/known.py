"""First-party packages by what they serve, for install hints. Knows nothing of what is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse


class KnownPackage(NamedTuple):
    """A first-party distribution.

    Attributes:
        dist: Its name on an index.
        folder: Its place in a checkout of this project.
        family: Id of the family it offers, empty when none.
        model_types: Values of `model_type` its family claims.
        commands: Commands it adds to the CLI.
    """

    dist: str
    folder: str
    family: str = ""
    model_types: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


KNOWN_PACKAGES = (
    KnownPackage("pegainfer-qwen3", "plugins/pegainfer_qwen3", "qwen3", ("qwen3",)),
    KnownPackage(
        "pegainfer-qwen35", "plugins/pegainfer_qwen35", "qwen35", ("qwen3_5", "qwen3_5_text")
    ),
    KnownPackage(
        "pegainfer-dsv2lite", "plugins/pegainfer_dsv2lite", "dsv2lite", ("deepseek_v2",)
    ),
    KnownPackage(
        "pegainfer-kimik2", "plugins/pegainfer_kimik2", "kimik2", ("kimi_k2", "kimi_k25")
    ),
    KnownPackage("pegainfer-server", "server", commands=("serve", "bench serve")),
)

FIRST_PARTY_DISTS = frozenset(package.dist for package in KNOWN_PACKAGES)


def package_for_model_type(model_type: str) -> KnownPackage | None:
    """The first-party package whose family claims this model type."""
    return next((p for p in KNOWN_PACKAGES if model_type in p.model_types), None)


def package_for_family(family_id: str) -> KnownPackage | None:
    """The first-party package that offers this family."""
    return next((p for p in KNOWN_PACKAGES if p.family == family_id), None)


def package_for_command(command: str) -> KnownPackage | None:
    """The first-party package that adds this command."""
    return next((p for p in KNOWN_PACKAGES if command in p.commands), None)


def install_command(*packages: KnownPackage) -> str:
    """The shell command that installs packages beside the running core.

    From a checkout these are paths, from an index names; without pip, as in environments made by
    uv, it is uv's command.
    """
    checkout = _checkout()
    targets: list[str] = []
    for package in packages:
        folder = None if checkout is None else checkout / package.folder
        if folder is not None and (folder / "pyproject.toml").is_file():
            targets += ["-e", _quoted(str(folder))]
        else:
            targets.append(package.dist)
    has_pip = importlib.util.find_spec("pip") is not None
    installer = f"{_quoted(sys.executable)} -m pip install" if has_pip else "uv pip install"
    return " ".join([installer, *targets])


def _checkout() -> Path | None:
    """Folder of the checkout that core is installed from in editable mode."""
    try:
        text = metadata.distribution("pegainfer").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(text) if text else {}
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlparse(origin["url"]).path))


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word else word
