"""`POST /v1/load_lora_adapter` and `/v1/unload_lora_adapter`; only where the engine takes any."""

from collections.abc import Sequence
from typing import Annotated

from litestar import post
from litestar.handlers import HTTPRouteHandler

from pegainfer_core.contract import AdapterError, AdapterProblem, EngineError, HealthState
from pegainfer_core.engine import EngineClient
from pegainfer_core.lora import check_adapter_name
from pegainfer_core.weights import ConfigError
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.api_error import ApiError, engine_failed, invalid, unavailable, unsupported
from pegainfer_server.protocol.adapters import LoadAdapterRequest, UnloadAdapterRequest
from pegainfer_server.routes.body import JSON_BODY, strict_body
from pegainfer_server.served_model import ServedModel
from pegainfer_server.settings import taken_name
from pegainfer_server.state import ServerState

_TEXT = b"text/plain; charset=utf-8"


def adapter_routes(state: ServerState) -> Sequence[HTTPRouteHandler]:
    """The handlers, bound to a server."""

    @post(
        "/v1/load_lora_adapter",
        status_code=200,
        dto=strict_body(LoadAdapterRequest, {}),
        return_dto=None,
    )
    async def load_lora_adapter(data: Annotated[LoadAdapterRequest, JSON_BODY]) -> BytesReply:
        client, name = state.serving().client, data.lora_name
        _check(data, state.serving())
        try:
            await client.load_adapter(name, data.lora_path, replace=data.load_inplace)
        except (AdapterError, EngineError) as error:
            raise _as_api_error(error, "lora_path", client) from error
        return _said(f"Success: LoRA adapter '{name}' added successfully.")

    @post(
        "/v1/unload_lora_adapter",
        status_code=200,
        dto=strict_body(UnloadAdapterRequest, {}),
        return_dto=None,
    )
    async def unload_lora_adapter(data: Annotated[UnloadAdapterRequest, JSON_BODY]) -> BytesReply:
        client = state.serving().client
        try:
            await client.unload_adapter(data.lora_name)
        except (AdapterError, EngineError) as error:
            raise _as_api_error(error, "lora_name", client) from error
        return _said(f"Success: LoRA adapter '{data.lora_name}' removed successfully.")

    return load_lora_adapter, unload_lora_adapter


def _check(data: LoadAdapterRequest, model: ServedModel) -> None:
    name = data.lora_name
    if data.is_3d_lora_weight:
        raise unsupported("adapters of experts are not supported", "is_3d_lora_weight")
    taken = taken_name(name, model.names)
    if taken is not None:
        raise invalid(
            f"the model itself is served as {taken[:100]!r}; choose another name", "lora_name"
        )
    try:
        check_adapter_name(name, "lora_name")
    except ConfigError as error:
        raise invalid(str(error), "lora_name") from error
    if not data.load_inplace and any(name == known.name for known in model.client.adapters()):
        raise invalid(
            f"an adapter named {name!r} is loaded already; unload it first, or set load_inplace "
            "to true to replace it",
            "lora_name",
        )


def _said(text: str) -> BytesReply:
    return BytesReply(text.encode(), content_type=_TEXT)


def _as_api_error(error: AdapterError | EngineError, param: str, client: EngineClient) -> ApiError:
    if isinstance(error, EngineError):
        if client.health().state is HealthState.READY:
            return engine_failed(f"the adapter could not be changed: {error}")
        return unavailable(f"the engine is dead: {error}", "dead")
    match error.problem:
        case AdapterProblem.INVALID:
            return invalid(str(error), param)
        case AdapterProblem.UNKNOWN:
            return ApiError(404, str(error), code="model_not_found", param="lora_name")
        case AdapterProblem.CONFLICT:
            return ApiError(409, str(error), code="adapter_in_use", param="lora_name")
