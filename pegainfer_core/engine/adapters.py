"""Which adapters are loaded, and in which slots: by name for requests, by content for the cache.

Changes happen on the engine's thread, between steps; reading files may happen on any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.contract import AdapterError, AdapterInfo, AdapterProblem, UnknownLora
from pegainfer_core.engine.sequence import Sequence
from pegainfer_core.lora import check_adapter_name, startup_adapters
from pegainfer_core.lora.options import adapter_folder
from pegainfer_core.weights import ConfigError

if TYPE_CHECKING:
    from pegainfer_core.contract import CoreOptions, GenerateRequest, RejectReason
    from pegainfer_core.engine.admission import Admission
    from pegainfer_core.lora import LoraLayout, LoraSlots, PackedAdapter

LiveSequences = Callable[[], Iterable[Sequence]]
"""All sequences that wait or run."""


class ReadAdapter(NamedTuple):
    """An adapter that was read and fits the model, in the form of a slot."""

    info: AdapterInfo
    packed: PackedAdapter


class _Loaded(NamedTuple):
    info: AdapterInfo
    slot: int


class AdapterTable:
    """The adapters of one engine.

    A slot belongs to a name, or to the requests that still run with what it held under a name that
    was given to other weights since; it is overwritten when neither is so. What a step that was
    launched reads is safe too: writing waits for all of them.

    Args:
        slots: The memory.
        layout: Where the model takes adapters.
        max_rank: The option `--max-lora-rank`.
    """

    def __init__(self, slots: LoraSlots, layout: LoraLayout, max_rank: int) -> None:
        self._slots = slots
        self._layout = layout
        self._max_rank = max_rank
        self._by_name: dict[str, _Loaded] = {}
        self._live: LiveSequences = tuple

    @property
    def infos(self) -> list[AdapterInfo]:
        """Those loaded, by name."""
        return [self._by_name[name].info for name in sorted(self._by_name)]

    def watch(self, live: LiveSequences) -> None:
        """Learn whose adapters must stay."""
        self._live = live

    def load_at_start(self, options: CoreOptions) -> None:
        """Load what `--lora` names.

        Raises:
            ConfigError: An adapter cannot be loaded; the message names it.
        """
        for name, folder in startup_adapters(options).items():
            try:
                self.install(self.read(name, folder))
            except (ConfigError, AdapterError) as error:
                raise ConfigError(f"--lora {name}={folder}: {error}") from error

    def read(self, name: str, path: str) -> ReadAdapter:
        """Read an adapter's folder; on any thread.

        Raises:
            ConfigError: Name or folder cannot be used.
        """
        from pegainfer_core.lora import read_adapter  # NumPy, which planning does without

        check_adapter_name(name, "lora_name")
        folder = adapter_folder(path)
        weights = read_adapter(folder, self._layout, self._max_rank)
        info = AdapterInfo(
            name=name, path=str(folder), rank=weights.config.rank, digest=weights.digest
        )
        return ReadAdapter(info, self._slots.pack(weights))

    def install(self, adapter: ReadAdapter, *, replace: bool = False) -> AdapterInfo:
        """Put an adapter into a slot and give it its name; on the engine's thread.

        Raises:
            AdapterError: The name is taken, or no slot is free.
        """
        info, packed = adapter
        if info.name in self._by_name and not replace:
            raise AdapterError(
                AdapterProblem.INVALID,
                f"an adapter named {info.name!r} is loaded already; unload it first, or set "
                "load_inplace to true to replace it",
            )
        slot = self._free_slot(info.name)
        # Until it is written, nothing may find the slot under the old name.
        self._by_name.pop(info.name, None)
        self._slots.write(slot, packed)
        self._by_name[info.name] = _Loaded(info, slot)
        return info

    def remove(self, name: str) -> AdapterInfo:
        """Take an adapter out; on the engine's thread.

        Raises:
            AdapterError: There is none of that name, or requests use it.
        """
        loaded = self._by_name.get(name)
        if loaded is None:
            raise AdapterError(AdapterProblem.UNKNOWN, str(UnknownLora(name=name)))
        num_users = sum(sequence.adapter_slot == loaded.slot for sequence in self._live())
        if num_users:
            raise AdapterError(
                AdapterProblem.CONFLICT,
                f"{num_users} requests use the adapter {name!r}; try again when they have ended",
            )
        del self._by_name[name]
        return loaded.info

    def accept(self, request: GenerateRequest, admission: Admission) -> Sequence | RejectReason:
        """`Admission.accept`, with the adapter that the request names."""
        if request.lora is None:
            return admission.accept(request)
        loaded = self._by_name.get(request.lora)
        if loaded is None:
            return UnknownLora(name=request.lora)
        accepted = admission.accept(request, loaded.info.digest)
        if isinstance(accepted, Sequence):
            accepted.adapter_slot = loaded.slot
        return accepted

    def _free_slot(self, name: str) -> int:
        used = {sequence.adapter_slot for sequence in self._live()}
        used |= {loaded.slot for other, loaded in self._by_name.items() if other != name}
        free = [slot for slot in range(self._slots.num_slots) if slot not in used]
        if free:
            return free[0]
        names = ", ".join(sorted(self._by_name)) or "of requests that still run"
        raise AdapterError(
            AdapterProblem.CONFLICT,
            f"all {self._slots.num_slots} adapter slots are in use ({names}); unload an adapter, "
            "wait for requests that use one, or start with a larger --max-loras",
        )


class NoAdapters:
    """The table of an engine without LoRA: whoever names an adapter is refused."""

    def accept(self, request: GenerateRequest, admission: Admission) -> Sequence | RejectReason:
        """`Admission.accept`, which looks at the engine's capabilities."""
        return admission.accept(request)

    def watch(self, live: LiveSequences) -> None:
        """There is nothing to keep."""
