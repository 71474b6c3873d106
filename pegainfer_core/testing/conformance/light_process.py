"""Runs as a script, in a Python where heavy modules do not exist: what every start of the CLI runs.

Reads a job from stdin as JSON, imports the plugin, asks its family to probe and to plan, and prints
a report as JSON. Knows nothing of pytest, which is why it is no module of the package.
"""

import json
import sys
import time
import traceback


def main() -> None:
    """Do the job."""
    job = json.load(sys.stdin)
    sys.path[:] = job["sys_path"]
    for name in job["blocked"]:
        sys.modules[name] = None  # type: ignore[assignment]
    print(json.dumps(run(job)))


def run(job: dict[str, object]) -> dict[str, object]:
    """Import, probe and plan; stop at the first exception and report it."""
    from importlib.metadata import EntryPoint
    from pathlib import Path

    import msgspec

    import pegainfer_core.plugin
    from pegainfer_core.contract import LaunchContext

    report: dict[str, object] = {}
    context = msgspec.convert(job["context"], LaunchContext)
    try:
        started_s = time.process_time()
        plugin = EntryPoint("plugin", context.entry_point, "pegainfer.plugins").load()
        report["import_s"] = time.process_time() - started_s
        families = {family.id: family for family in plugin.model_families()}
        family = families[context.family]
        configs = job["configs"]
        assert isinstance(configs, list)
        report["claims"] = [
            isinstance(family.probe(config, Path(context.model_dir)), pegainfer_core.plugin.Claim)
            for config in configs
        ]
        plans = [msgspec.to_builtins(family.plan(context)) for _ in range(2)]
        report["plan"], report["plan_again"] = plans
    except Exception:
        report["error"] = traceback.format_exc()
    return report


if __name__ == "__main__":
    main()
