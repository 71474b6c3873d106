"""The conformance kit: what every model family must keep, as test classes to be subclassed.

Needs pytest, which the extra `pegainfer[testing]` installs.
"""

import pkgutil

import pytest

# Before they are imported: failures in the kit then show the values that were compared.
_MODULES = [module.name for module in pkgutil.iter_modules(__path__)]
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))

# ruff: noqa: E402 - see above.
from pegainfer_core.testing.conformance.aborts import AbortConformance
from pegainfer_core.testing.conformance.family import ContractConformance, FamilyConformance
from pegainfer_core.testing.conformance.foreign_configs import FOREIGN_CONFIGS
from pegainfer_core.testing.conformance.lifecycle import LifecycleConformance
from pegainfer_core.testing.conformance.limits import LimitsConformance
from pegainfer_core.testing.conformance.rejects import RejectsConformance
from pegainfer_core.testing.conformance.requirements import Requirements
from pegainfer_core.testing.conformance.sampling import SamplingConformance
from pegainfer_core.testing.conformance.scheduling import SchedulingConformance
from pegainfer_core.testing.conformance.static import StaticConformance
from pegainfer_core.testing.conformance.tiers import KvTierConformance
from pegainfer_core.testing.conformance.transport import TransportConformance

__all__ = [
    "FOREIGN_CONFIGS",
    "AbortConformance",
    "ContractConformance",
    "FamilyConformance",
    "KvTierConformance",
    "LifecycleConformance",
    "LimitsConformance",
    "RejectsConformance",
    "Requirements",
    "SamplingConformance",
    "SchedulingConformance",
    "StaticConformance",
    "TransportConformance",
]
