"""Main of an engine process: build the family's engine, bridge it to the server's socket.

Started as `python -m pegainfer_core.engine.worker SOCKET_FD HEARTBEAT_FD [json]`; the last word
asks for JSON log lines. No registry crosses the process: the launch message names the plugin
module to import.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Protocol, cast

import msgspec

from pegainfer_core.contract import AdapterEngine, EngineError, HealthState
from pegainfer_core.engine.command import (
    Abort,
    Close,
    LoadAdapter,
    ResetPrefixCache,
    Submit,
    UnloadAdapter,
)
from pegainfer_core.engine.heartbeat import Heartbeat
from pegainfer_core.engine.json_log import JsonLogFormatter
from pegainfer_core.engine.outbox import Outbox
from pegainfer_core.engine.wire import (
    AdaptersChanged,
    Channel,
    Fault,
    Launch,
    Ready,
    StartFailed,
    ToWorker,
)
from pegainfer_core.weights.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from pegainfer_core.contract import AdapterInfo, EngineHandle
    from pegainfer_core.plugin.family import ModelFamily

_ORPHAN_GRACE_S = 3.0
_PULSE_S = 0.25


class _OffersFamilies(Protocol):
    def model_families(self) -> Sequence[ModelFamily]: ...


def load_family(entry_point: str, family_id: str) -> ModelFamily:
    """Import one plugin and take the family from it.

    Args:
        entry_point: `module` or `module:attribute`, as in the plugin's metadata.
        family_id: Which of the plugin's families.

    Raises:
        EngineError: The plugin does not offer that family.
    """
    module, _, attribute = entry_point.partition(":")
    imported = importlib.import_module(module)
    plugin = cast(_OffersFamilies, getattr(imported, attribute) if attribute else imported)
    for family in plugin.model_families():
        if family.id == family_id:
            return family
    raise EngineError(f"plugin {entry_point!r} offers no model family {family_id!r}")


def _build(channel: Channel, launch: Launch) -> EngineHandle | None:
    try:
        family = load_family(launch.context.entry_point, launch.context.family)
        return family.launch(launch.context, launch.plan)
    except Exception as error:
        user_fault = isinstance(error, ConfigError)
        message = str(error) if user_fault else f"{type(error).__name__}: {error}"
        _tell(channel, StartFailed(message, traceback.format_exc(), user_fault))
        return None


def _tell(channel: Channel, message: Ready | StartFailed | Fault) -> None:
    """Send, unless the server is gone; `main` sees the closed socket too."""
    with contextlib.suppress(OSError):
        channel.send(message)


def _pump(channel: Channel, engine: EngineHandle, outbox: Outbox) -> bool:
    """Forward commands until told to close. Returns False when the server went away instead."""
    for command in channel.receive(msgspec.msgpack.Decoder(ToWorker)):
        try:
            match command:
                case Submit(request):
                    engine.submit(request)
                case Abort(request_id):
                    engine.abort(request_id)
                case ResetPrefixCache(device_only):
                    engine.reset_prefix_cache(device_only=device_only)
                case LoadAdapter() | UnloadAdapter():
                    _change_adapters(command, engine, outbox)
                case Close():
                    return True
        except EngineError:
            continue  # The loop has ended; its last words are already on their way.
    return False


def _change_adapters(
    command: LoadAdapter | UnloadAdapter, engine: EngineHandle, outbox: Outbox
) -> None:
    """Begin; the answer follows when it is done."""
    ticket = command.ticket
    if not isinstance(engine, AdapterEngine):
        error = EngineError("this engine takes no LoRA adapters")
        outbox.answer(AdaptersChanged.failed(ticket, error, []))
        return
    if isinstance(command, LoadAdapter):
        change = engine.load_adapter(command.name, command.path, replace=command.replace)
    else:
        change = engine.unload_adapter(command.name)

    def answer(done: Future[AdapterInfo]) -> None:
        error, loaded = done.exception(), engine.adapters()
        if error is not None:
            outbox.answer(AdaptersChanged.failed(ticket, error, loaded))
        else:
            outbox.answer(AdaptersChanged(ticket, done.result(), None, "", loaded))

    change.add_done_callback(answer)


class _Pulse:
    """Carries the engine's own health into shared memory; speaks up when it is bad.

    Two watches in a row: the engine's heartbeat is judged here, where the length of its steps is
    known; the server judges this process, which a signal may have stopped whole.
    """

    def __init__(self, engine: EngineHandle, channel: Channel, outbox: Outbox, beat: Heartbeat):
        self._engine = engine
        self._channel = channel
        self._outbox = outbox
        self._heartbeat = beat
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pegainfer-pulse", daemon=True)
        self._heartbeat.beat()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PULSE_S):
            health = self._engine.health()
            if health.state is not HealthState.READY:
                self._report(health.detail)
                return
            self._heartbeat.beat()

    def _report(self, detail: str) -> None:
        self._outbox.close()
        _tell(self._channel, Fault(detail))
        self._channel.close()


@contextlib.contextmanager
def _watching_for_orphanhood(channel: Channel) -> Iterator[None]:
    """Loading can take minutes, and nobody reads the socket meanwhile: watch it for its end."""
    loading = True

    def watch() -> None:
        if not channel.wait_readable() and loading:
            os._exit(3)

    threading.Thread(target=watch, name="pegainfer-orphan-watch", daemon=True).start()
    try:
        yield
    finally:
        loading = False


def _die_if_hung(seconds: float) -> None:
    """Nobody hears this engine any more: leave even if a step never returns."""
    timer = threading.Timer(seconds, os._exit, [3])
    timer.daemon = True
    timer.start()


def _set_up_logging(*, as_json: bool) -> None:
    if not as_json:
        logging.basicConfig(level=logging.WARNING, format="engine: %(levelname)s %(message)s")
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def main() -> int:
    """Run until the server closes the engine, dies, or the engine fails."""
    _set_up_logging(as_json="json" in sys.argv[3:])
    # The server decides when to stop; a Ctrl-C or a service manager signals the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    launch = next(channel.receive(msgspec.msgpack.Decoder(Launch)), None)
    if launch is None:
        return 1
    sys.path[:] = launch.sys_path
    with _watching_for_orphanhood(channel):
        engine = _build(channel, launch)
    if engine is None:
        return 1
    # What was built lives as long as the process: keep the collector from walking it every few
    # steps, which would show as latency spikes.
    gc.collect()
    gc.freeze()
    _tell(channel, Ready(engine.info))  # Before anything that may send of its own accord.
    outbox = Outbox(channel, engine.metrics)
    engine.connect(outbox.put)
    pulse = _Pulse(engine, channel, outbox, Heartbeat(int(sys.argv[2])))
    asked_to_close = _pump(channel, engine, outbox)
    if not asked_to_close:
        _die_if_hung(_ORPHAN_GRACE_S)
    pulse.stop()
    engine.close()
    outbox.close()
    if not asked_to_close:
        # With a lost device, what frees memory at exit can fail or block: leave without it.
        sys.stderr.flush()
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
