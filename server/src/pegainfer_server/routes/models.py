"""`GET /v1/models` and `GET /v1/models/{id}`."""

from collections.abc import Sequence

from litestar import Request, get
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler

from pegainfer_core.contract import AdapterInfo
from pegainfer_server.answer.reply import BytesReply
from pegainfer_server.answer.sse import encode_json
from pegainfer_server.protocol.models import ModelCard, ModelList
from pegainfer_server.state import ServerState


def model_routes(state: ServerState) -> Sequence[HTTPRouteHandler]:
    """The handlers, bound to a server."""

    @get("/v1/models")
    async def list_models() -> BytesReply:
        model = state.serving()
        cards = [model_card(state, name) for name in model.names]
        cards += [model_card(state, each.name, each) for each in model.client.adapters()]
        return BytesReply(encode_json(ModelList(object="list", data=cards)))

    # Names may hold slashes, as repo ids do.
    @get("/v1/models/{name:path}")
    async def show_model(request: Request[None, None, State]) -> BytesReply:
        name = str(request.path_params["name"])
        known = name.removeprefix("/")
        adapter = state.serving().adapter_for(known)
        return BytesReply(encode_json(model_card(state, known, adapter)))

    return list_models, show_model


def model_card(state: ServerState, name: str, adapter: AdapterInfo | None = None) -> ModelCard:
    """What a client can know of the model, or of an adapter, whose parent is the model.

    Raises:
        ApiError: 503, there is none yet.
    """
    model = state.serving()
    return ModelCard(
        id=name,
        object="model",
        created=state.started_unix_s,
        owned_by="pegainfer",
        root=state.settings.model_root if adapter is None else adapter.path,
        parent=None if adapter is None else model.names[0],
        max_model_len=model.info.max_model_len,
        default_sampling_params=dict(model.sampling_defaults),
    )
