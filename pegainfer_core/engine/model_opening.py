"""The way from a launch to a model on a backend, as far as it is the same for every decoder.

Knows no family: specs, parameters and the model itself are the caller's.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pegainfer_core.backend import make_backend
from pegainfer_core.engine.decoder_runner import lay_out
from pegainfer_core.engine.local import BuiltEngine, LocalEngine
from pegainfer_core.weights import (
    ParameterLoader,
    compute_dtype,
    load_config,
    loading_bar,
    open_source,
    text_tensor_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pegainfer_core.backend import Backend, DType, KvLayout, KvPool
    from pegainfer_core.contract import CoreOptions, LaunchContext, ServePlan
    from pegainfer_core.engine.decoder_runner import DecoderModel
    from pegainfer_core.weights import FloatType, TensorSpecs

__all__ = ["OpenParameters", "launch_local", "open_pages", "open_parameters"]


class OpenParameters(NamedTuple):
    """A checkpoint that is being read.

    Attributes:
        loader: Hands out its tensors.
        dtype: Type that the backend computes them in.
    """

    loader: ParameterLoader
    dtype: DType


def launch_local(
    context: LaunchContext, plan: ServePlan, build: Callable[[Backend], BuiltEngine]
) -> LocalEngine:
    """Start an engine in this process; returns once it is ready.

    Args:
        context: Of the launch.
        plan: Its plan.
        build: Makes the engine on a backend, on the engine's own thread; when it raises, the
            backend is closed.

    Raises:
        ConfigError: The device cannot be used.
        Exception: Whatever `build` raised, unchanged.
    """

    def build_on_own_backend() -> BuiltEngine:
        backend = make_backend(plan.backend, context.options, context.threads)
        try:
            return build(backend)
        except BaseException:
            backend.close()
            raise

    return LocalEngine(build_on_own_backend)


@contextmanager
def open_parameters(
    context: LaunchContext,
    backend: Backend,
    specs: TensorSpecs,
    dtype: FloatType | None,
    unread: tuple[str, ...],
) -> Iterator[OpenParameters]:
    """A checkpoint's tensors, or those of `--load-format dummy`, with a progress bar.

    On a clean exit every tensor must have been read, and the backend has all of it.

    Args:
        context: Of the launch.
        backend: Where the parameters will live.
        specs: The tensors, by the names of a text-only checkpoint.
        dtype: What config.json says of the type; None leaves it to the tensors.
        unread: Patterns of tensors that may be there and are not wanted.

    Raises:
        ConfigError: The checkpoint is at fault, or does not fit.
    """
    raw_config = load_config(Path(context.model_dir))
    with open_source(context, specs, dtype) as source, loading_bar() as progress:
        computed = backend.compute_dtype(compute_dtype(raw_config, source))
        loader = ParameterLoader(
            source,
            specs,
            dtype=computed.value,
            rename=text_tensor_name,
            ignore=unread,
            progress=progress,
        )
        backend.begin_loading(loader)
        yield OpenParameters(loader, computed)
        loader.finish()
        backend.end_loading()


def open_pages(
    model: DecoderModel, backend: Backend, layout: KvLayout, plan: ServePlan, options: CoreOptions
) -> KvPool:
    """The KV pages: as many as the plan says, else as fit beside all that steps need.

    Args:
        model: Its parameters and buffers are on the backend.
        backend: The model's.
        layout: Of a page.
        plan: Limits of a step.
        options: How much memory may be used.

    Raises:
        ConfigError: No page fits.
    """
    num_pages = plan.num_pages
    if num_pages is None:
        # What steps need is taken before the pages get the rest.
        lay_out(model, backend, backend.kv_pool(layout, 0), plan)
        num_pages = backend.fitting_pages(layout, options.gpu_memory_utilization)
    return backend.kv_pool(layout, num_pages)
