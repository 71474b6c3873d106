"""An engine on simulated time: real schedulers and KV pages, a device that only takes time.

Compares scheduling policies on the CPU in seconds, and checks every token and page on the way.
"""

from pegainfer_core.testing.simulator.closed_trace import ClosedTrace
from pegainfer_core.testing.simulator.conversation_trace import ConversationTrace
from pegainfer_core.testing.simulator.cost_model import CostModel, StepCost
from pegainfer_core.testing.simulator.front_end import FrontEndCost
from pegainfer_core.testing.simulator.h200 import (
    H200_FRONT_END,
    H200_HOST_TIER,
    H200_PLAN,
    H200_QWEN3_4B,
)
from pegainfer_core.testing.simulator.host_tier import HostTierCost, SimulatedHostTier
from pegainfer_core.testing.simulator.open_trace import OpenTrace
from pegainfer_core.testing.simulator.report import Report, Spread
from pegainfer_core.testing.simulator.simulated_runner import SimulatedRunner
from pegainfer_core.testing.simulator.simulation import SchedulerFactory, Simulation
from pegainfer_core.testing.simulator.simulation_error import SimulationError
from pegainfer_core.testing.simulator.trace import Arrival, Trace

__all__ = [
    "H200_FRONT_END",
    "H200_HOST_TIER",
    "H200_PLAN",
    "H200_QWEN3_4B",
    "Arrival",
    "ClosedTrace",
    "ConversationTrace",
    "CostModel",
    "FrontEndCost",
    "HostTierCost",
    "OpenTrace",
    "Report",
    "SchedulerFactory",
    "SimulatedHostTier",
    "SimulatedRunner",
    "Simulation",
    "SimulationError",
    "Spread",
    "StepCost",
    "Trace",
]
