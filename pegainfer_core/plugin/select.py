"""Chooses the one family that serves a checkpoint, and explains the choice.

Reads config.json; loads no plugin and touches no weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pegainfer_core.plugin.family import Claim, Rejection
from pegainfer_core.plugin.fault import UserFault
from pegainfer_core.plugin.install_hint import install_command
from pegainfer_core.plugin.known import package_for_family, package_for_model_type
from pegainfer_core.plugin.near_match import near_match
from pegainfer_core.plugin.plugin_record import PluginState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pegainfer_core.plugin.family import ConfigDict
    from pegainfer_core.plugin.host import PluginHost
    from pegainfer_core.plugin.offered_family import OfferedFamily


class SelectionError(UserFault):
    """No family, or more than one, claims the checkpoint."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one family says about a checkpoint.

    Attributes:
        family: Its id.
        dist: The distribution that offers it.
        claims: Whether it serves the checkpoint.
        recognised: Whether the checkpoint is of its kind, served or not.
        reason: Its note or its reason.
    """

    family: str
    dist: str
    claims: bool
    recognised: bool
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The whole choice for one checkpoint.

    Attributes:
        model_dir: The checkpoint folder.
        model_type: From its config, empty when there is none.
        architectures: From its config.
        family: Id of the chosen family, None when there is not exactly one.
        verdicts: What each family said.
        error: Why none was chosen, empty when one was.
        hint: A command that installs what is missing, empty when that would not help.
    """

    model_dir: str
    model_type: str
    architectures: list[str]
    family: str | None
    verdicts: list[Verdict]
    error: str = ""
    hint: str = ""


def select_family(
    host: PluginHost, config: ConfigDict, model_dir: Path, family_id: str | None = None
) -> OfferedFamily:
    """The family that serves a checkpoint.

    Args:
        host: The loaded plugins.
        config: The parsed config.json.
        model_dir: The checkpoint folder.
        family_id: Taken without asking any family, when given.

    Raises:
        SelectionError: Not exactly one family claims it, or `family_id` is unknown.
    """
    if family_id is not None:
        return _named_family(host, family_id)
    decision = decide(host, config, model_dir)
    if decision.family is None:
        raise SelectionError(decision.error)
    return host.families[decision.family]


def decide(host: PluginHost, config: ConfigDict, model_dir: Path) -> Decision:
    """Ask every family about a checkpoint."""
    verdicts = [_ask(offered, config, model_dir) for offered in host.families.values()]
    claims = [verdict for verdict in verdicts if verdict.claims]
    decision = Decision(
        model_dir=str(model_dir),
        model_type=str(config.get("model_type") or ""),
        architectures=_architectures(config),
        family=claims[0].family if len(claims) == 1 else None,
        verdicts=verdicts,
    )
    if len(claims) > 1:
        return msgspec.structs.replace(decision, error=_conflict_message(decision, claims))
    if not claims:
        decision = msgspec.structs.replace(decision, hint=_install_hint(host, decision))
        error = _no_match_message(decision, _unloaded_lines(host))
        return msgspec.structs.replace(decision, error=error)
    return decision


def _ask(offered: OfferedFamily, config: ConfigDict, model_dir: Path) -> Verdict:
    answer = _probe(offered, config, model_dir)
    if isinstance(answer, Claim):
        claims, recognised, reason = True, True, answer.note
    elif isinstance(answer, Rejection):
        claims, recognised, reason = False, answer.recognised, answer.reason
    else:
        claims, recognised = False, False
        reason = f"its probe returned {answer!r}; expected a Claim or a Rejection"
    return Verdict(
        family=offered.family.id,
        dist=offered.plugin.dist,
        claims=claims,
        recognised=recognised,
        reason=" ".join(reason.split()),
    )


def _probe(offered: OfferedFamily, config: ConfigDict, model_dir: Path) -> object:
    """A third party's answer, which may be anything."""
    try:
        return offered.family.probe(config, model_dir)
    except Exception as error:
        return Rejection(f"its probe raised {type(error).__name__}: {error}")


def _architectures(config: ConfigDict) -> list[str]:
    value = config.get("architectures")
    return [str(name) for name in value] if isinstance(value, list) else []


def _conflict_message(decision: Decision, claims: Sequence[Verdict]) -> str:
    names = " and ".join(f"{claim.family} (package {claim.dist})" for claim in claims)
    ids = " or ".join(f"--family {claim.family}" for claim in claims)
    return f"{decision.model_dir} is claimed by {names}; choose with {ids}"


def _no_match_message(decision: Decision, unloaded: Sequence[str]) -> str:
    kind = f"model_type {decision.model_type!r}" if decision.model_type else "no model_type"
    architectures = ", ".join(decision.architectures) or "none"
    where = f"{decision.model_dir}/config.json ({kind}, architectures: {architectures})"
    own = [verdict for verdict in decision.verdicts if verdict.recognised]
    if own:
        reasons = "; ".join(f"{v.family} (package {v.dist}): {v.reason}" for v in own)
        return f"{where} cannot be served by {reasons}"
    head = f"no installed plugin serves {where}"
    if decision.hint:
        head += f"; install one: {decision.hint}"
    elif not decision.verdicts and not unloaded:
        head += "; no model family is installed"
    elif package_for_model_type(decision.model_type) is None:
        head += "; no package of this project does"
    verdicts = [f"  {v.family} (package {v.dist}): {v.reason}" for v in decision.verdicts]
    return "\n".join([head, *verdicts, *unloaded])


def _install_hint(host: PluginHost, decision: Decision) -> str:
    """Empty when the package for this model type is there already."""
    package = package_for_model_type(decision.model_type)
    if package is None or any(record.dist == package.dist for record in host.records):
        return ""
    return install_command(package)


def _named_family(host: PluginHost, family_id: str) -> OfferedFamily:
    if family_id in host.families:
        return host.families[family_id]
    package = package_for_family(family_id)
    head = f"--family {family_id}: no such model family is loaded"
    near = near_match(family_id, host.families)
    if package is not None and all(record.dist != package.dist for record in host.records):
        raise SelectionError(f"{head}; install it: {install_command(package)}")
    if near:
        raise SelectionError(f"{head}; did you mean {near}?")
    head += f"; loaded are: {', '.join(sorted(host.families)) or 'none'}"
    raise SelectionError("\n".join([head, *_unloaded_lines(host)]))


def _unloaded_lines(host: PluginHost) -> list[str]:
    """What might have served the checkpoint, had it been loaded."""
    broken = [r for r in host.records if r.state in (PluginState.FAILED, PluginState.INCOMPATIBLE)]
    lines = [f"  plugin {record.label} {record.state}: {record.error}" for record in broken]
    blocked = [r.name for r in host.records if r.state is PluginState.BLOCKED]
    if blocked:
        lines.append(f"  not loaded, since PEGAINFER_PLUGINS leaves them out: {', '.join(blocked)}")
    return lines
