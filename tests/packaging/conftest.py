from __future__ import annotations

from pathlib import Path

import pytest

from .wheelhouse import Environment, build_wheels


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every distribution's wheel, by name."""
    return build_wheels(tmp_path_factory.mktemp("wheelhouse"))


@pytest.fixture(scope="session")
def core_alone(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with `pip install pegainfer` and nothing more."""
    return Environment(tmp_path_factory.mktemp("core-alone"), [wheels["pegainfer"]])


@pytest.fixture(scope="session")
def everything(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with every wheel."""
    return Environment(tmp_path_factory.mktemp("everything"), list(wheels.values()))
