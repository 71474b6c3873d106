"""The command that installs a missing first-party package in this environment."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from pegainfer_core.plugin.known import KnownPackage


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
            targets += ["-e", shlex.quote(str(folder))]
        else:
            targets.append(package.dist)
    has_pip = importlib.util.find_spec("pip") is not None
    installer = f"{shlex.quote(sys.executable)} -m pip install" if has_pip else "uv pip install"
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
