"""Brings up what a server serves: the engine and, beside it, the text side of the checkpoint."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pegainfer_core.plugin import CommandFault
from pegainfer_core.text import ModelText, TextError
from pegainfer_server.parsing import ChatParsers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineHandle
    from pegainfer_core.plugin import PreparedLaunch

T = TypeVar("T")


class Loaded(NamedTuple):
    """A ready engine and its text side."""

    handle: EngineHandle
    text: ModelText
    parsers: ChatParsers


class Loading:
    """An engine and the text side of its checkpoint on their way, each on a thread of its own.

    Begins at once, before there is an event loop: an engine takes its time, in which the rest of
    the server is imported.
    """

    def __init__(
        self,
        launch: PreparedLaunch,
        *,
        in_process: bool,
        generation_config: str,
        tool_call_parser: str | None = None,
        reasoning_parser: str | None = None,
        json_logs: bool = False,
    ) -> None:
        """Begin.

        Args:
            launch: What to start.
            in_process: Run the engine in this process.
            generation_config: Where sampling defaults come from.
            tool_call_parser: Instead of the family's; "none" for no parser.
            reasoning_parser: Likewise.
            json_logs: Whether an engine process writes its log lines as JSON.

        Raises:
            PluginFault: No plugin offers a parser of that name, or two do.
        """
        self._launch = launch
        self._parsers = ChatParsers.chosen(
            launch.host.hooks,
            launch.family.chat,
            reasoning=reasoning_parser,
            tools=tool_call_parser,
        )
        self._engine = _in_thread(
            lambda: _start_engine(launch, in_process, json_logs), "pegainfer-load-engine"
        )
        self._text = _in_thread(
            lambda: _load_text(launch, generation_config), "pegainfer-load-text"
        )

    async def result(self) -> Loaded:
        """Wait for both.

        Raises:
            CommandFault: The checkpoint's text files are unusable.
            ConfigError: The checkpoint or an option is at fault.
            EngineError: The engine could not start.
            PluginFault: A plugin's `engine_ready` refused.
        """
        try:
            text = await _shielded(self._text)
            handle = await _shielded(self._engine)
        except BaseException:
            # An engine that comes up after all is not needed.
            self._engine.add_done_callback(_close)
            raise
        launch = self._launch
        ready = launch.host.hooks.engine_ready
        try:
            await asyncio.to_thread(ready, handle, launch.family, launch.plan)
        except BaseException:
            await asyncio.to_thread(handle.close)
            raise
        return Loaded(handle, text, self._parsers)


def _start_engine(launch: PreparedLaunch, in_process: bool, json_logs: bool) -> EngineHandle:
    if in_process:
        return launch.family.launch(launch.context, launch.plan)
    from pegainfer_core.engine import ProcessEngine

    return ProcessEngine(launch.context, launch.plan, json_logs=json_logs)


def _load_text(launch: PreparedLaunch, generation_config: str) -> ModelText:
    try:
        return ModelText.load(
            Path(launch.context.model_dir),
            launch.config,
            generation_config=generation_config,
            template_defaults=launch.family.chat.template_defaults,
        )
    except TextError as error:
        raise CommandFault(str(error)) from error


def _in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run on a daemon thread: a stop must not wait until a checkpoint has been read."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


async def _shielded(future: Future[T]) -> T:
    """Wait for what goes on when nobody waits any more."""
    return await asyncio.shield(asyncio.wrap_future(future))


def _close(engine: Future[EngineHandle]) -> None:
    if engine.exception() is None:
        engine.result().close()
