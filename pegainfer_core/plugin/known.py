"""First-party packages by what they serve. Knows nothing of what is installed."""

from __future__ import annotations

from typing import NamedTuple


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
    KnownPackage("pegainfer-dsv2lite", "plugins/pegainfer_dsv2lite", "dsv2lite", ("deepseek_v2",)),
    KnownPackage("pegainfer-kimik2", "plugins/pegainfer_kimik2", "kimik2", ("kimi_k2", "kimi_k25")),
    KnownPackage("pegainfer-server", "server", commands=("serve",)),
    KnownPackage(
        "pegainfer-bench",
        "plugins/pegainfer_bench",
        commands=(
            "bench serve",
            "bench latency",
            "bench throughput",
            "bench startup",
            "bench kernels",
            "bench plot",
        ),
    ),
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
