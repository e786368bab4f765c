"""The routes that do not generate: what is served, and how this server is."""

import time
from typing import Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.models.served_models import ServedModels
from kakeya_http_shim.problems import ApiError, model_not_found, unavailable


class Model(BaseModel):
    """A model that can be asked for."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Unix time in seconds: when this server started")
    owned_by: str = "kakeya"


class ModelList(BaseModel):
    """The models that are served now."""

    object: Literal["list"] = "list"
    data: list[Model]


class Health(BaseModel):
    """How this server is."""

    status: Literal["ok"] = "ok"


class ListingRoutes:
    """GET /v1/models, /v1/models/{id}, /healthz, /readyz, /metrics."""

    def __init__(self, models: ServedModels, metrics: Metrics) -> None:
        self._models = models
        self._metrics = metrics
        self._created = int(time.time())

    async def models(self, request: Request) -> Response:
        """Raises ApiError."""
        names = await self._models.names(request.state.api_key)
        return _json(ModelList(data=[self._model(name) for name in names]))

    async def model(self, request: Request) -> Response:
        """Raises ApiError."""
        wanted = request.path_params["id"]
        if wanted not in await self._models.names(request.state.api_key):
            raise model_not_found(wanted)
        return _json(self._model(wanted))

    async def health(self, _: Request) -> Response:
        """Of this process alone."""
        return _json(Health())

    async def readiness(self, _: Request) -> Response:
        """Whether a request would find the runtime, and a model with its tokenizer. Raises ApiError."""
        try:
            names = await self._models.names("")
        except ApiError as error:
            if error.status == 401:  # the router is there and asks for keys, which nobody gave this server
                return _json(Health())
            raise
        problem = unavailable("no worker serves a model that has a tokenizer here", "no_worker")
        for name in names:
            try:
                await self._models.find(name, "")  # which loads it
            except ApiError as error:
                problem = error
            else:
                return _json(Health())
        raise problem

    async def metrics(self, _: Request) -> Response:
        """For Prometheus."""
        content, media_type = self._metrics.exposition()
        return Response(content, media_type=media_type)

    def _model(self, name: str) -> Model:
        return Model(id=name, created=self._created)


def _json(answer: BaseModel) -> JSONResponse:
    return JSONResponse(answer.model_dump())
