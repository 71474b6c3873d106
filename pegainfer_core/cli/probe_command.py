"""`pegainfer probe`: which family serves a checkpoint, and what the others say."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin.select import Decision, decide, select_family
from pegainfer_core.weights import load_config, resolve_model_dir

if TYPE_CHECKING:
    from pegainfer_core.cli.core_commands import ProbeOptions
    from pegainfer_core.plugin.host import PluginHost


def run(host: PluginHost, options: ProbeOptions) -> int:
    """Print the decision.

    Returns:
        0 when exactly one family serves the checkpoint, else 2.
    """
    model_dir = resolve_model_dir(options.model).absolute()
    config = load_config(model_dir)
    decision = decide(host, config, model_dir)
    if options.family is not None:
        chosen = select_family(host, config, model_dir, options.family).family.id
        decision = msgspec.structs.replace(decision, family=chosen, error="", hint="")
    if options.json:
        print(msgspec.json.format(msgspec.json.encode(decision)).decode())
    else:
        _print(decision)
    return 0 if decision.family is not None else 2


def _print(decision: Decision) -> None:
    if decision.family is None:
        print(f"pegainfer: error: {decision.error}", file=sys.stderr)
        return
    print(f"{decision.model_dir}: served by {decision.family}")
    print(f"  model_type {decision.model_type or '-'}, ", end="")
    print(f"architectures {', '.join(decision.architectures) or '-'}")
    for verdict in decision.verdicts:
        answer = "yes" if verdict.claims else "no"
        reason = f": {verdict.reason}" if verdict.reason else ""
        print(f"  {verdict.family} (package {verdict.dist}): {answer}{reason}")
