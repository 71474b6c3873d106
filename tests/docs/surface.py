"""The supported surface, as its page lists it."""

from __future__ import annotations

import inspect
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
else. [compatibility.md](compatibility.md) says how they may change, [decoder.md](decoder.md) which
of them a family with a model is made of. The list is the `__all__` of each package with the first
line of each docstring, the rest of which `help()` shows; `python -m tests.docs.refresh` writes it,
and a test fails when it is stale.
"""


def public_names(package: str) -> list[str]:
    """The `__all__` of a package of core, in alphabetical order."""
    names: list[str] = import_module(f"pegainfer_core.{package}").__all__
    return sorted(names, key=str.lower)


def summary(package: str, name: str) -> str:
    """The first line of a class's or function's own docstring; "" for constants and aliases."""
    found = getattr(import_module(f"pegainfer_core.{package}"), name)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return ""
    text = vars(found).get("__doc__") if inspect.isclass(found) else found.__doc__
    return inspect.cleandoc(text).partition("\n")[0] if text else ""


def rendered() -> str:
    """The whole page."""
    parts = [_HEAD]
    for package in PACKAGES:
        parts.append(f"\n## `pegainfer_core.{package}`\n\n")
        for name in public_names(package):
            words = summary(package, name)
            parts.append(f"- `{name}`: {words}\n" if words else f"- `{name}`\n")
    return "".join(parts)
