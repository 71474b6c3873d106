"""The levels, put together."""

from __future__ import annotations

from pegainfer_core.testing.conformance.aborts import AbortConformance
from pegainfer_core.testing.conformance.lifecycle import LifecycleConformance
from pegainfer_core.testing.conformance.limits import LimitsConformance
from pegainfer_core.testing.conformance.rejects import RejectsConformance
from pegainfer_core.testing.conformance.sampling import SamplingConformance
from pegainfer_core.testing.conformance.scheduling import SchedulingConformance
from pegainfer_core.testing.conformance.static import StaticConformance
from pegainfer_core.testing.conformance.transport import TransportConformance


# pytest runs the tests of the last base first.
class ContractConformance(
    TransportConformance,
    SamplingConformance,
    SchedulingConformance,
    AbortConformance,
    RejectsConformance,
    LimitsConformance,
    LifecycleConformance,
):
    """Level 1: the engine contract, on tiny weights and no GPU."""


class FamilyConformance(ContractConformance, StaticConformance):
    """Levels 0 and 1.

    A plugin's author subclasses it in a test module:

        class TestParrot(FamilyConformance):
            plugin = "pegainfer_parrot.plugin"
            family = "parrot"
            claims = ({"model_type": "parrot"},)
            requirements = Requirements(logprobs=False, prompt_logprobs=False)

            @staticmethod
            def make_model(folder):
                (folder / "config.json").write_text('{"model_type": "parrot"}')
    """
