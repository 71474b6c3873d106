"""Entry of the `pegainfer` command: finds the command, runs it, and words what went wrong.

Exit codes: what the command returns; 2 for faults the user can mend; 1 for others.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING

from pegainfer_core import __version__
from pegainfer_core.cli.command_table import Command, CommandTable
from pegainfer_core.cli.core_commands import add_core_commands
from pegainfer_core.cli.flags import Parser, build, place_words
from pegainfer_core.plugin.fault import UserFault
from pegainfer_core.plugin.flag import flags_of
from pegainfer_core.plugin.host import PluginHost

if TYPE_CHECKING:
    from collections.abc import Sequence

USER_FAULT = 2
OTHER_FAULT = 1
INTERRUPTED = 130

_HELP = ("-h", "--help")
_TELL_THEMSELVES = ("plugins", "doctor")
"""Commands that print what is wrong with plugins in full."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line.

    Args:
        argv: Words after the program's name; those of the process when None.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        return _run([word for word in words if word != "--debug"])
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output is gone; keep the interpreter from flushing into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OTHER_FAULT
    except Exception as error:
        return _report(error, debug)


def _run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        print(f"pegainfer {__version__}")
        return 0
    host = PluginHost.load()
    table = CommandTable()
    add_core_commands(table, host)
    table.load_plugin_commands(host)
    if not words or words[0] in _HELP:
        print(_overview(table))
        return 0
    found = table.find(words)
    if found is None or found[0].name not in _TELL_THEMSELVES:
        for warning in host.warnings:
            print(f"pegainfer: warning: {warning}", file=sys.stderr)
    if found is None:
        from pegainfer_core.cli.missing_command import missing_command

        raise missing_command(table, host, words)
    command, rest = found
    if command.launch is not None:
        return _run_launch(host, command, rest)
    return _run_plain(command, rest)


def _run_plain(command: Command, argv: Sequence[str]) -> int:
    flags = flags_of(command.options)
    parser = Parser(f"pegainfer {command.name}", command.summary)
    parser.add_flags("flags", flags)
    if any(word in _HELP for word in argv):
        print(parser.format_help(), end="")
        return 0
    values, words = parser.parse(argv)
    place_words(flags, values, words)
    assert command.run is not None
    return command.run(build(command.options, values))


def _run_launch(host: PluginHost, command: Command, argv: Sequence[str]) -> int:
    from pegainfer_core.cli.launching import launch_help, parse_launch

    if any(word in _HELP for word in argv):
        print(launch_help(host, command), end="")
        return 0
    parsed = parse_launch(host, command, argv)
    # A command that is to write a log for machines tells the notes there.
    if getattr(parsed.options, "log_format", "text") == "text":
        for note in parsed.launch.plan.notes:
            print(f"pegainfer: {note}", file=sys.stderr)
    assert command.launch is not None
    return command.launch(parsed.launch, parsed.options)


def _overview(table: CommandTable) -> str:
    width = max(len(command.name) for command in table.commands)
    lines = [f"pegainfer {__version__}: serve large language models", "", "commands:"]
    lines += [f"  {c.name.ljust(width)}  {c.summary}" for c in table.commands]
    if table.find(["serve"]) is None:
        lines += ["", "`pegainfer serve` comes with the package pegainfer-server"]
    lines += ["", "`pegainfer COMMAND --help` lists a command's flags; every command takes --debug"]
    return "\n".join(lines)


def _report(error: Exception, debug: bool) -> int:
    """Word a failure: one line for the user's faults, the traceback for ours."""
    from pegainfer_core.contract import EngineError
    from pegainfer_core.weights.errors import ConfigError

    message = str(error)
    if isinstance(error, UserFault | ConfigError):
        code = USER_FAULT
    elif isinstance(error, OSError) and error.filename is not None:
        # A file or folder the user named, or one in it, that no reader has worded better.
        code, message = USER_FAULT, f"{error.filename}: {error.strerror}"
    elif isinstance(error, EngineError):
        code = OTHER_FAULT
    else:
        traceback.print_exception(error)
        return OTHER_FAULT
    if debug:
        traceback.print_exception(error)
    print(f"pegainfer: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
