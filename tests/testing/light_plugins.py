"""Plugins that break rules of level 0, in a module as light as a plugin's must be."""

from __future__ import annotations

import itertools
from typing import Annotated

import msgspec
from msgspec import Meta
from pegainfer_echo.plugin import EchoFamily

from pegainfer_core.contract import LaunchContext, ServePlan
from pegainfer_core.plugin import Claim, FamilyOptions, hookimpl


class Plugin:
    """What an entry point may name: any object with hook implementations."""

    __pegainfer_api__ = "1.0"

    def __init__(self, family: EchoFamily) -> None:
        self._family = family

    @hookimpl
    def model_families(self) -> list[EchoFamily]:
        return [self._family]


class GreedyFamily(EchoFamily):
    """Claims everything."""

    def probe(self, config, model_dir) -> Claim:
        return Claim("mine")


class CarelessOptions(FamilyOptions, frozen=True, kw_only=True):
    max_num_seqs: Annotated[int, Meta(description="hides the common flag of this name")] = 4
    careless_level: int = 0


class CarelessFamily(EchoFamily):
    """Breaks every rule of level 0 that one family can break without hiding another."""

    options = CarelessOptions
    shared_options = frozenset({"max_prefill_tokens"})
    _counter = itertools.count(1000)

    def plan(self, context: LaunchContext) -> ServePlan:
        chunk_tokens = next(self._counter)
        return msgspec.structs.replace(super().plan(context), max_prefill_tokens=chunk_tokens)


class CarelessPlugin(Plugin):
    __pegainfer_api__ = "0.9"

    @hookimpl
    def engine_redy(self) -> None:
        """Misspelt."""


greedy = Plugin(GreedyFamily())
careless = CarelessPlugin(CarelessFamily())
