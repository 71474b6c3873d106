"""The supported surface, as its page lists it."""

from __future__ import annotations

from importlib import import_module

PACKAGES = (
    "plugin",
    "contract",
    "engine",
    "lora",
    "kv",
    "sampling",
    "backend",
    "weights",
    "text",
    "testing",
)

_HEAD = """# The supported surface

What plugins and programs may import from core: the names below, from these packages, and nothing
else. [compatibility.md](compatibility.md) says how they may change. The list is the `__all__` of
each package; `python -m tests.docs.refresh` writes it, and a test fails when it is stale.
"""


def public_names(package: str) -> list[str]:
    """The `__all__` of a package of core, in alphabetical order."""
    names: list[str] = import_module(f"pegainfer_core.{package}").__all__
    return sorted(names, key=str.lower)


def rendered() -> str:
    """The whole page."""
    parts = [_HEAD]
    for package in PACKAGES:
        names = ",\n".join(f"`{name}`" for name in public_names(package))
        parts.append(f"\n## `pegainfer_core.{package}`\n\n{names}\n")
    return "".join(parts)
