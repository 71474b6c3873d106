"""Brings up what a server serves: the engine and, beside it, the text side of the checkpoint."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pegainfer_core.plugin import CommandFault
from pegainfer_core.text import ModelText, TextError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pegainfer_core.contract import EngineHandle
    from pegainfer_core.plugin import PreparedLaunch

T = TypeVar("T")


class Loaded(NamedTuple):
    """A ready engine and its text side."""

    handle: EngineHandle
    text: ModelText


async def load(launch: PreparedLaunch, *, in_process: bool, generation_config: str) -> Loaded:
    """Start the engine and read the tokenizer at the same time.

    Raises:
        CommandFault: The checkpoint's text files are unusable.
        ConfigError: The checkpoint or an option is at fault.
        EngineError: The engine could not start.
        PluginFault: A plugin's `engine_ready` refused.
    """
    engine = _in_thread(lambda: _start_engine(launch, in_process), "pegainfer-load-engine")
    text = _in_thread(lambda: _load_text(launch, generation_config), "pegainfer-load-text")
    try:
        loaded_text = await text
    except BaseException:
        engine.add_done_callback(_close_late)
        raise
    handle = await engine
    try:
        await asyncio.to_thread(launch.host.hooks.engine_ready, handle, launch.family, launch.plan)
    except BaseException:
        await asyncio.to_thread(handle.close)
        raise
    return Loaded(handle, loaded_text)


def _start_engine(launch: PreparedLaunch, in_process: bool) -> EngineHandle:
    if in_process:
        return launch.family.launch(launch.context, launch.plan)
    from pegainfer_core.engine import ProcessEngine

    return ProcessEngine(launch.context, launch.plan)


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


def _in_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run on a daemon thread: a stop must not wait until a checkpoint has been read."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome: tuple[T | None, BaseException | None] = (work(), None)
        except BaseException as error:
            outcome = (None, error)
        try:
            loop.call_soon_threadsafe(settle, *outcome)
        except RuntimeError:
            pass  # The loop is closed: nobody waits any more.

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def _close_late(engine: asyncio.Future[EngineHandle]) -> None:
    """The server stops; an engine that comes up after all is not needed."""
    if not engine.cancelled() and engine.exception() is None:
        engine.result().close()
