"""Everything that requests need of the one model being served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pegainfer_server.api_error import model_not_found

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pegainfer_core.contract import AdapterInfo, EngineInfo
    from pegainfer_core.engine import EngineClient
    from pegainfer_core.text import ModelText, Tokenizer
    from pegainfer_server.parsing import ChatParsers


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A ready engine with its text side.

    Attributes:
        names: Names requests may use; the first is the default.
        client: The engine.
        text: Tokenizer and its company.
        sampling_defaults: For requests without values of their own.
        parsers: Take the answers of chats apart.
    """

    names: tuple[str, ...]
    client: EngineClient
    text: ModelText
    sampling_defaults: Mapping[str, float | int]
    parsers: ChatParsers

    @property
    def info(self) -> EngineInfo:
        """Facts about the engine."""
        return self.client.info

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.text.tokenizer

    def name_for(self, asked: str | None) -> str:
        """The name an answer carries.

        Raises:
            ApiError: 404, no model of that name.
        """
        if not asked:
            return self.names[0]
        self.adapter_for(asked)
        return asked

    def adapter_for(self, name: str) -> AdapterInfo | None:
        """The adapter that a name stands for, its own or `MODEL:ADAPTER`; None for the base model.

        Raises:
            ApiError: 404, no model and no loaded adapter of that name.
        """
        if name in self.names:
            return None
        loaded = {adapter.name: adapter for adapter in self.client.adapters()}
        if name in loaded:
            return loaded[name]
        for base in self.names:
            if name.startswith(f"{base}:") and name[len(base) + 1 :] in loaded:
                return loaded[name[len(base) + 1 :]]
        served = ", ".join(repr(known) for known in (*self.names, *loaded))
        raise model_not_found(f"no model named {name[:100]!r}; served here: {served}")
