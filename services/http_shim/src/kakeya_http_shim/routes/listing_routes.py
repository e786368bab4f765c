"""The routes that do not generate: what is served, and how this server is."""

import time
from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kakeya import ServedModel
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.models.served_models import ServedModels
from kakeya_http_shim.problems import ApiError, model_not_found, unavailable


class Sizes(BaseModel):
    """What OpenAI's API has no field for; of the largest lane of a worker that serves the model."""

    sink: int | None = Field(description="first tokens that a session keeps for ever, unless more are pinned")
    window: int | None = Field(description="last tokens that a session keeps")
    vocab_size: int = Field(description="token ids are below it")


class Model(BaseModel):
    """A model that can be asked for."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Unix time in seconds: when this server started")
    owned_by: str = "kakeya"
    max_model_len: int = Field(
        description="tokens of a conversation that the model sees at once, sink and window; it may be longer"
    )
    kakeya: Sizes


class ModelList(BaseModel):
    """The models that are served now."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    """How this server is."""

    status: Literal["ok"] = "ok"


class Version(BaseModel):
    """Which server this is."""

    version: str


class ListingRoutes:
    """GET routes: models, the version, how this server is, and its metrics."""

    def __init__(self, models: ServedModels, metrics: Metrics, version: str) -> None:
        self._models = models
        self._metrics = metrics
        self._version = version
        self._created = int(time.time())

    async def models(self, request: Request) -> Response:
        """Raises ApiError."""
        listed = await self._models.listed(request.state.api_key)
        return _json(ModelList(data=[self._model(name, model) for name, model in listed.items()]))

    async def model(self, request: Request) -> Response:
        """Raises ApiError."""
        wanted = request.path_params["id"]
        served = await self._models.listed_as(wanted, request.state.api_key)
        if served is None:
            raise model_not_found(wanted)
        return _json(self._model(wanted, served))

    async def version(self, _: Request) -> Response:
        """Of this server."""
        return _json(Version(version=self._version))

    async def alive(self, _: Request) -> Response:
        """Of this process alone."""
        return _json(Health())

    async def readiness(self, _: Request) -> Response:
        """Whether a request would find the runtime, and a model with its tokenizer. Raises ApiError."""
        if not self._models.is_loaded:
            raise unavailable("the tokenizers are being loaded", "loading")
        try:
            listed = await self._models.listed("")
        except ApiError as error:
            if error.status == 401:  # the router is there and asks for keys, which nobody gave this server
                return _json(Health())
            raise
        problem = unavailable("no worker serves a model that has a tokenizer here", "no_worker")
        for name in listed:
            try:
                await self._models.find(name, "")  # which loads it
            except ApiError as error:
                problem = error
            else:
                return _json(Health())
        raise problem

    async def metrics(self, request: Request) -> Response:
        """For Prometheus."""
        content, media_type = self._metrics.exposition(request.headers.get("accept", ""))
        return Response(content, media_type=media_type)

    def _model(self, name: str, served: ServedModel) -> Model:
        # A router of before it said so has 0 for both; no session has a window of 0.
        sink, window = (served.sink, served.window) if served.window else (None, None)
        sizes = Sizes(sink=sink, window=window, vocab_size=served.vocab_size)
        return Model(id=name, created=self._created, max_model_len=served.num_lane_tokens, kakeya=sizes)


def _json(answer: BaseModel) -> JSONResponse:
    return JSONResponse(answer.model_dump())
