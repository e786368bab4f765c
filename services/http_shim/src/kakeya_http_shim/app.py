"""The application: its routes, and what every request passes before it reaches one."""

from collections.abc import Callable, Mapping, Sequence
from importlib import metadata

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from kakeya_http_shim import error_shapes
from kakeya_http_shim.conversations.said import SESSION_HEADER
from kakeya_http_shim.messages_api.betas import IGNORED_BETAS_HEADER
from kakeya_http_shim.metrics import CountRequests, Metrics
from kakeya_http_shim.middleware.body_limit import BodyLimit
from kakeya_http_shim.middleware.deprecation import DeprecationHeaders
from kakeya_http_shim.middleware.host_check import HostCheck
from kakeya_http_shim.middleware.key_check import KeyCheck
from kakeya_http_shim.middleware.other_paths import OtherPaths
from kakeya_http_shim.middleware.request_ids import RequestIds
from kakeya_http_shim.middleware.request_span import with_request_span
from kakeya_http_shim.problems import ApiError, internal
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.generation_routes import ChatRoute, CompletionRoute
from kakeya_http_shim.routes.listing_routes import ListingRoutes
from kakeya_http_shim.routes.messages_routes import CountTokensRoute, MessagesRoute
from kakeya_http_shim.routes.ollama_routes import (
    NOT_SERVED,
    REFUSED_METHODS,
    OllamaChats,
    OllamaListing,
    OllamaPrompts,
    OllamaShow,
)
from kakeya_http_shim.routes.openapi.document import document
from kakeya_http_shim.routes.responses.compact_route import CompactRoute
from kakeya_http_shim.routes.responses.conversation_routes import ConversationRoutes
from kakeya_http_shim.routes.responses.kept_routes import KeptRoutes
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.response_route import ResponsesRoute
from kakeya_http_shim.routes.responses.resumed_route import ResumedRoute
from kakeya_http_shim.routes.responses.running import Running
from kakeya_http_shim.routes.responses.streams import Streams
from kakeya_http_shim.routes.text_routes import DetokenizeRoute, TemplateRoute, TokenizeRoute
from kakeya_http_shim.settings import HttpSettings


def application(desk: Desk, metrics: Metrics, deprecation: Mapping[str, str], page: Sequence[Route] = ()) -> ASGIApp:
    """The whole application.

    Args:
        deprecation: headers of every answer.
        page: routes of the live page.
    """
    settings = desk.settings
    app: ASGIApp = _routed(desk, metrics, page)
    app = BodyLimit(app, settings.max_body_bytes, settings.max_held_bytes, settings.head_timeout_seconds)
    app = KeyCheck(app, desk.models.check)
    app = _with_cors(app, settings)
    app = HostCheck(app, settings.hosts)
    app = CountRequests(app, metrics)
    app = with_request_span(app)
    app = OtherPaths(app)
    app = DeprecationHeaders(app, deprecation)
    return RequestIds(app)


def _routed(desk: Desk, metrics: Metrics, page: Sequence[Route]) -> Starlette:
    version = metadata.version("kakeya-http-shim")
    listing = ListingRoutes(desk.models, metrics, version)
    described = document(version, max_choices=desk.settings.max_choices)

    async def openapi(_: Request) -> Response:
        return JSONResponse(described)

    routes = [
        Route("/v1/chat/completions", ChatRoute(desk), methods=["POST"]),
        Route("/v1/completions", CompletionRoute(desk), methods=["POST"]),
        Route("/v1/messages", MessagesRoute(desk), methods=["POST"]),
        Route("/v1/messages/count_tokens", CountTokensRoute(desk), methods=["POST"]),
        *_of_responses(desk),
        *_of_conversations(desk),
        Route("/v1/models", listing.models),
        Route("/v1/models/{id:path}", listing.model),
        *_of_ollama(desk),
        Route("/tokenize", TokenizeRoute(desk), methods=["POST"]),
        Route("/detokenize", DetokenizeRoute(desk), methods=["POST"]),
        Route("/apply-template", TemplateRoute(desk), methods=["POST"]),
        Route("/version", listing.version),
        Route("/", listing.alive),
        Route("/healthz", listing.alive),
        *(Route(path, listing.readiness) for path in ("/readyz", "/health", "/ping")),
        Route("/metrics", listing.metrics),
        Route("/openapi.json", openapi),
        *page,
    ]
    handlers: dict[type[Exception], Callable[..., Response]] = {
        ApiError: _api_error,
        HTTPException: _http_error,
        ClientDisconnect: _unheard,
        Exception: _unforeseen,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # clients would follow it to where this server believes itself to be
    return app


def _of_responses(desk: Desk) -> list[Route]:
    settings = desk.settings
    looking = Looking(Running(), settings.response_linger_seconds, settings.response_ttl_seconds)
    kept = KeptRoutes(desk, looking, Streams(looking, ResumedRoute(desk, looking)))
    return [
        Route("/v1/responses", ResponsesRoute(desk, looking), methods=["POST"]),
        Route("/v1/responses/compact", CompactRoute(desk, looking).compact, methods=["POST"]),
        Route("/v1/responses/{id}", kept.response, methods=["GET"]),
        Route("/v1/responses/{id}", kept.delete, methods=["DELETE"]),
        Route("/v1/responses/{id}/input_items", kept.items, methods=["GET"]),
        Route("/v1/responses/{id}/cancel", kept.cancel, methods=["POST"]),
    ]


def _of_conversations(desk: Desk) -> list[Route]:
    routes = ConversationRoutes(desk)
    one = "/v1/conversations/{id}"
    return [
        Route("/v1/conversations", routes.create, methods=["POST"]),
        Route(one, routes.conversation, methods=["GET"]),
        Route(one, routes.update, methods=["POST"]),
        Route(one, routes.delete, methods=["DELETE"]),
        Route(f"{one}/items", routes.items, methods=["GET"]),
        Route(f"{one}/items", routes.add, methods=["POST"]),
        Route(f"{one}/items/{{item_id:path}}", routes.item, methods=["GET"]),
        Route(f"{one}/items/{{item_id:path}}", routes.delete_item, methods=["DELETE"]),
    ]


def _of_ollama(desk: Desk) -> list[Route]:
    listing = OllamaListing(desk)
    return [
        Route("/api/chat", OllamaChats(desk), methods=["POST"]),
        Route("/api/generate", OllamaPrompts(desk), methods=["POST"]),
        Route("/api/tags", listing.tags),
        Route("/api/ps", listing.running),
        Route("/api/version", listing.version),
        Route("/api/show", OllamaShow(desk), methods=["POST"]),
        *(Route(path, listing.refuse, methods=REFUSED_METHODS) for path in NOT_SERVED),
    ]


def _with_cors(app: ASGIApp, settings: HttpSettings) -> ASGIApp:
    if not settings.cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=[
            *("x-request-id", "request-id", "retry-after", "deprecation", "sunset", "link"),
            *(SESSION_HEADER, IGNORED_BETAS_HEADER),
        ],
    )


def _api_error(request: Request, error: ApiError) -> Response:
    return error_shapes.response(error, request.scope)


def _unheard(_: Request, __: Exception) -> Response:
    return Response()  # its client has left


def _unforeseen(request: Request, _: Exception) -> Response:
    return _api_error(request, internal())  # Starlette raises it again, and the server logs it


def _http_error(request: Request, error: HTTPException) -> Response:
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code)
    message = f"{error.detail}: {request.method} {request.url.path}"
    response = _api_error(request, ApiError(error.status_code, message, code=code))
    response.headers.update(error.headers or {})
    return response
