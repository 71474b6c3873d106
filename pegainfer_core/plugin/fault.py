"""Faults a person at the prompt can mend; the CLI prints their message and no traceback."""

from __future__ import annotations


class UserFault(Exception):
    """Something the user gave or installed is at fault.

    The message is for them: what was given, what is wrong with it, what to do. Its first line
    stands for itself; further lines are detail.
    """


class PluginFault(UserFault):
    """A plugin is at fault, or two plugins are at odds."""


class CommandFault(UserFault):
    """A command cannot do what was asked, such as serving on a port that is in use."""
