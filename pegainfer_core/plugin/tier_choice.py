"""Checks what the user says about KV offload, and finds who offers the tiers. Opens none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from pegainfer_core.contract import TierChoice
from pegainfer_core.plugin.fault import UserFault

if TYPE_CHECKING:
    from collections.abc import Collection

    from pegainfer_core.contract import CoreOptions
    from pegainfer_core.plugin.host import PluginHost

_HOST: Final = "host"
_DETAILS: Final = ("kv_offload_host_gib", "kv_offload_disk_path", "kv_offload_disk_gib")


def choose_tiers(
    host: PluginHost, options: CoreOptions, given: Collection[str]
) -> tuple[CoreOptions, list[TierChoice]]:
    """The tiers behind the host's in the order of `--kv-offload`, and the completed options.

    Args:
        host: The loaded plugins.
        options: The core's options; the folder of the disk tier is filled in and made absolute.
        given: Fields of `options` the user set.

    Raises:
        UserFault: The flags contradict each other, or a value is impossible here.
        PluginFault: A tier is offered by nobody, or by several.
    """
    if options.kv_offload is None:
        _refuse_details(given, "--kv-offload", "--kv-offload host")
        return options, []
    names = _names(options.kv_offload)
    if not options.prefix_cache:
        raise UserFault(
            "--kv-offload keeps the pages of the prefix cache; remove --no-prefix-cache"
        )
    _check_memory(options.kv_offload_host_gib)
    if not names[1:]:
        _refuse_details(
            set(given) - {"kv_offload_host_gib"}, "a disk tier", "--kv-offload host,disk"
        )
        return options, []
    offers = host.hooks.kv_tiers()
    offered = [(name, offers.choose(name)) for name in names[1:]]
    choices = [TierChoice(name=n, entry_point=tier.plugin.entry_point) for n, tier in offered]
    path = str(_folder(options.kv_offload_disk_path))
    return msgspec.structs.replace(options, kv_offload_disk_path=path), choices


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UserFault(
            f"--kv-offload {text!r} has an empty name; expected names such as host or host,disk"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserFault(f"--kv-offload {text} names {twice} twice; name each tier once")
    if names[0] != _HOST:
        rest = ",".join(name for name in names if name != _HOST)
        raise UserFault(
            f"--kv-offload {text}: what goes to a tier passes through host memory, so host comes "
            f"first; give --kv-offload host,{rest}"
        )
    return names


def _refuse_details(given: Collection[str], missing: str, remedy: str) -> None:
    for field in _DETAILS:
        if field in given:
            flag = "--" + field.replace("_", "-")
            raise UserFault(f"{flag} does nothing without {missing}; add {remedy}, or remove it")


def _check_memory(host_gib: float) -> None:
    there_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    if host_gib >= there_gib:
        raise UserFault(
            f"--kv-offload-host-gib {host_gib:g} is more than this machine's {there_gib:.1f} GiB "
            "of memory; give what it can spare"
        )


def _folder(path: str | None) -> Path:
    if path is None:
        cache_home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        return Path(cache_home).expanduser().absolute() / "pegainfer" / "kv"
    folder = Path(path).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise UserFault(f"--kv-offload-disk-path {path} is no folder; name one, which may be new")
    return folder
