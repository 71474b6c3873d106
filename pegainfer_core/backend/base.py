"""What a backend is: memory, transfers, and its ops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from pegainfer_core.backend.rope import RopeTable, rope_tables
from pegainfer_core.backend.workspace import Workspace
from pegainfer_core.weights import ConfigError, round_floats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pegainfer_core.backend.batch import Batch
    from pegainfer_core.backend.decoder import AttentionShape
    from pegainfer_core.backend.dtype import DType
    from pegainfer_core.backend.kv_layout import KvLayout
    from pegainfer_core.backend.kv_pool import KvPool
    from pegainfer_core.backend.lora_site import LoraSite
    from pegainfer_core.backend.metadata import StepMetadata
    from pegainfer_core.backend.ops import Ops
    from pegainfer_core.backend.page_mover import PageMover, StateMover
    from pegainfer_core.backend.recurrent import DeltaShape
    from pegainfer_core.backend.recurrent_ops import RecurrentOps
    from pegainfer_core.backend.state_layout import StateLayout
    from pegainfer_core.backend.state_pool import StatePool
    from pegainfer_core.backend.tensor import Tensor
    from pegainfer_core.sampling import ChoiceDevice
    from pegainfer_core.weights import FloatType, ParameterLoader, RopeConfig


class Backend(ABC):
    """A place where models run. Belongs to the thread that made it.

    Attributes:
        name: "numpy" or "cuda".
        ops: What model code calls.
    """

    name: str
    ops: Ops

    @abstractmethod
    def compute_dtype(self, stored: FloatType) -> DType:
        """The type in which a checkpoint of this type is computed here."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """An uninitialised tensor for parameters and activations."""

    @abstractmethod
    def kv_pool(self, layout: KvLayout, num_pages: int) -> KvPool:
        """`num_pages` pages that requests can use (ids 1 to `num_pages`), plus the padding page."""

    @abstractmethod
    def adopt(self, values: NDArray[np.float32], dtype: DType) -> Tensor:
        """A tensor with these values, each of which `dtype` can represent.

        Args:
            values: C-contiguous; belongs to the backend from now on.
            dtype: Type of the tensor.
        """

    @abstractmethod
    def to_host(self, tensor: Tensor, count: int) -> NDArray[np.float32]:
        """The first `count` rows as float32; may be a view that the next step overwrites."""

    @abstractmethod
    def upload(self, metadata: StepMetadata) -> Batch:
        """Make a finished step's metadata known to the ops."""

    def run(self, batch: Batch, work: Callable[[Batch], None]) -> None:
        """Do the device work of a step; a backend may record it once and replay it later.

        Args:
            batch: The step.
            work: Calls ops only, the same ones for equal `num_tokens` and `num_sample_rows`.
        """
        work(batch)

    def recorded_sizes(self, max_rows: int) -> list[int]:
        """Numbers of decoding rows whose steps `run` records, so that they can be warmed up.

        Args:
            max_rows: Most rows of a step.
        """
        return []

    def recorded_prompts(self, max_tokens: int) -> list[int]:
        """Numbers of prompt tokens whose steps `run` records, likewise.

        Args:
            max_tokens: Most tokens of a step.
        """
        return []

    def token_choice(self, vocab_size: int, max_rows: int) -> ChoiceDevice | None:
        """What chooses tokens where the logits lie; None where the host does.

        Args:
            vocab_size: Columns of the logits.
            max_rows: Most rows that choose in a step, and slots of requests.
        """
        return None

    def begin_loading(self, loader: ParameterLoader) -> None:
        """Look at what will be loaded, before any of it is read.

        Raises:
            ConfigError: The backend can tell that it does not fit into its memory.
        """
        return

    def load(self, loader: ParameterLoader, names: Sequence[str], dtype: DType) -> Tensor:
        """Read parameters, stacked along their first axis; complete after `end_loading`."""
        return self.adopt(loader.read_stacked(names), dtype)

    def end_loading(self) -> None:
        """Finish what `load` began."""
        return

    def prepare_decoder(
        self, shape: AttentionShape, hidden: int, intermediate: int, layout: KvLayout
    ) -> None:
        """Learn what steps will look like before the first of them, so as to build for it.

        Args:
            shape: Of the attention.
            hidden: Width of the residual stream.
            intermediate: Width of the MLP.
            layout: Of the KV pages.
        """
        return

    def prepare_lora(self, sites: Sequence[LoraSite]) -> None:
        """Learn that steps may have rows with adapters, before the first of them.

        Args:
            sites: Where they add something: those of one layer, one behind a norm first.
        """
        return

    @abstractmethod
    def pack(self, values: NDArray[np.float32], dtype: DType) -> NDArray[np.generic]:
        """Values as tensors hold them, for `overwrite`; may be called on any thread.

        Args:
            values: C-contiguous, each one that `dtype` can represent.
            dtype: Of the tensor.
        """

    @abstractmethod
    def overwrite(self, tensor: Tensor, index: int, packed: NDArray[np.generic]) -> None:
        """Replace `tensor[index]`, after all steps given before and before those given later.

        Args:
            tensor: What holds it.
            index: Along the first axis.
            packed: From `pack`, of the shape of `tensor[index]`.
        """

    def fitting_pages(self, layout: KvLayout, utilization: float) -> int:
        """How many KV pages fit beside what is allocated now.

        Args:
            layout: Of a page.
            utilization: Share of the memory to use.

        Raises:
            ConfigError: None, or the backend cannot tell.
        """
        raise ConfigError(f"the {self.name} backend needs --num-kv-pages")

    def free_bytes(self, utilization: float) -> int | None:
        """Memory that may still be taken; None if models run in the host's.

        Args:
            utilization: Share of the device's memory that may be used, 0 to 1.
        """
        return None

    @abstractmethod
    def copy_pages(self, kv: KvPool, sources: list[int], targets: list[int]) -> None:
        """Copy whole pages; sources and targets are parallel and do not overlap."""

    @abstractmethod
    def page_mover(self, kv: KvPool) -> PageMover:
        """What copies pages of a pool to host memory and back, beside the steps."""

    @abstractmethod
    def clear_pages(self, kv: KvPool) -> None:
        """Fill every page with zeros."""

    def recurrent_ops(self) -> RecurrentOps:
        """What hybrid models call beside `ops`; a new object each time.

        Raises:
            ConfigError: The backend has none.
        """
        raise ConfigError(self._no_recurrent_layers())

    def prepare_recurrent(
        self, shape: DeltaShape, hidden: int, layout: StateLayout, rotary_dim: int = 0
    ) -> None:
        """Learn what recurrent layers will look like before the first step, as `prepare_decoder`.

        Args:
            shape: Of the layers.
            hidden: Width of the residual stream.
            layout: Of their states.
            rotary_dim: Channels of an attention head that turn, in a decoder that was prepared
                before; 0 leaves what else it needs to its first steps.
        """
        return

    def state_pool(self, layout: StateLayout, num_slots: int) -> StatePool:
        """`num_slots` slots of recurrent state; what they hold at first is of no use.

        Args:
            layout: Of a slot.
            num_slots: Slots 0 to `num_slots` - 1, beside one for padding rows if that is needed.

        Raises:
            ConfigError: There is no room for them, or the backend has no recurrent layers.
        """
        raise ConfigError(self._no_recurrent_layers())

    def copy_states(self, states: StatePool, sources: list[int], targets: list[int]) -> None:
        """Copy whole slots, after all steps given before and before those given later.

        Args:
            states: The slots.
            sources: Slots to read.
            targets: Parallel to them; no target is a source.
        """
        raise ConfigError(self._no_recurrent_layers())

    def state_mover(self, states: StatePool) -> StateMover:
        """What copies slots of states to host memory and back, beside the steps.

        Raises:
            ConfigError: The backend has no recurrent layers.
        """
        raise ConfigError(self._no_recurrent_layers())

    def _no_recurrent_layers(self) -> str:
        return f"the {self.name} backend has no recurrent layers; use --backend numpy"

    def raise_if_lost(self) -> None:
        """Ask, after a step failed, whether others can still run.

        Raises:
            DeviceFault: The device cannot be used any more.
        """
        return

    def close(self) -> None:
        """Release threads and what else outlives the last reference."""
        return

    def workspace(self, max_tokens: int, max_context_tokens: int) -> Workspace:
        """A new arena of step buffers."""
        return Workspace(self.empty, max_tokens, max_context_tokens)

    def rope_table(self, rope: RopeConfig, max_positions: int, dtype: DType) -> RopeTable:
        """Tables for positions 0 to `max_positions` - 1, narrowed to `dtype` at the end."""
        cos, sin = rope_tables(rope, max_positions)
        for table in (cos, sin):
            round_floats(table, dtype.value)
        return RopeTable(self.adopt(cos, dtype), self.adopt(sin, dtype))
