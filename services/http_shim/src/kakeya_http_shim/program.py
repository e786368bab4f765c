"""The shim as a whole: its parts, how they are wired, and the order in which they start and stop."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

import grpc
import structlog
from starlette.routing import Route

from kakeya import AsyncClient, tls_credentials
from kakeya.text.chat_tokenizer import TokenizerError
from kakeya_http_shim.answers.answering import Answering
from kakeya_http_shim.app import application
from kakeya_http_shim.choices.choice import ChoiceMaker
from kakeya_http_shim.choices.open_sessions import OpenSessions
from kakeya_http_shim.conversations.finding import Finding
from kakeya_http_shim.conversations.heads import Heads, SessionSeconds
from kakeya_http_shim.conversations.live_sessions import LiveSessions
from kakeya_http_shim.live.feeds import Feeds
from kakeya_http_shim.live.kept_answers import KeptAnswers
from kakeya_http_shim.live.ui_routes import UiRoutes
from kakeya_http_shim.metrics import Metrics
from kakeya_http_shim.middleware.deprecation import Deprecation
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.served_models import ServedModels
from kakeya_http_shim.routes.admission import Admission
from kakeya_http_shim.routes.desk import Desk
from kakeya_http_shim.routes.exchange import House
from kakeya_http_shim.routes.generation_routes import ChatRoute
from kakeya_http_shim.routes.sealing import Seal, Seals, seal_of_file
from kakeya_http_shim.server.listener import serving
from kakeya_http_shim.settings import HttpSettings
from kakeya_shared import plugins
from kakeya_shared.metrics.meters import Meters
from kakeya_shared.process.service_process import StartError
from kakeya_shared.rpc.metric_export import MetricExport
from kakeya_shared.rpc.otlp import TRACES
from kakeya_shared.settings.addresses import HostPort

_log = structlog.get_logger()

_SETTLE_SECONDS = 2.0
"""After the grace the rest is told so, and its sessions are closed."""


async def serve(settings: HttpSettings, stop: asyncio.Event) -> None:
    """Runs the shim until `stop` is set; raises StartError."""
    async with AsyncExitStack() as stack:
        # No key of this server's own: each request shows its caller's.
        tracing = None if TRACES.is_wanted() else False  # spans that go nowhere cost a tenth of a request
        client = AsyncClient(settings.router, api_key="", credentials=_credentials(settings), tracing=tracing)
        await stack.enter_async_context(client)
        sessions = OpenSessions()
        stack.push_async_callback(sessions.drain, _SETTLE_SECONDS)
        cut_short = asyncio.Event()
        meters = Meters()
        metrics = Metrics(meters)
        await stack.enter_async_context(MetricExport(meters, "http"))
        desk = _desk(settings, client, sessions, metrics, cut_short)
        deprecation = Deprecation.from_settings(settings)
        page = _page(desk, sessions, stop) if settings.serves_ui else ()
        app = application(desk, metrics, {} if deprecation is None else deprecation.headers(), page)
        address = await stack.enter_async_context(serving(app, settings, cut_short=cut_short))
        await _load(desk.models)  # requests that come meanwhile wait
        announce(settings, address, deprecation)
        await stop.wait()
        _log.info("stopping", in_flight=desk.house.admission.num_in_flight)


def _desk(
    settings: HttpSettings,
    client: AsyncClient,
    sessions: OpenSessions,
    metrics: Metrics,
    cut_short: asyncio.Event,
) -> Desk:
    open_timeout_seconds = settings.router_wait_s or math.inf
    seconds = SessionSeconds(settings.session_park_after_seconds, settings.session_close_after_seconds)
    heads = Heads(
        min_tokens=settings.shared_head_tokens,
        max_append_tokens=settings.max_append_tokens,
        session_seconds=seconds,
        tasks=sessions.tasks,
    )
    finding = Finding(heads)
    live = LiveSessions(
        finding=finding,
        session_seconds=seconds,
        open_timeout_seconds=open_timeout_seconds,
        max_append_tokens=settings.max_append_tokens,
        metrics=metrics,
        tasks=sessions.tasks,
    )
    maker = ChoiceMaker(
        sessions=sessions,
        live=live,
        session_ttl_seconds=settings.session_ttl_seconds,
        open_timeout_seconds=open_timeout_seconds,
        max_append_tokens=settings.max_append_tokens,
        splits_reasoning=settings.reasoning == "auto",
    )
    admission = Admission(
        settings.admission, settings.max_in_flight, settings.queue_length, settings.queue_max_wait_s, metrics
    )
    return Desk(
        settings=settings,
        client=client,
        models=_models(client, settings),
        answering=Answering(maker, metrics, settings.keep_alive_comment_seconds),
        finding=finding,
        house=House(admission, cut_short),
        seals=Seals(_seal(settings)),
    )


def _seal(settings: HttpSettings) -> Seal | None:
    if settings.signing_key_file is None:
        return None
    try:
        return seal_of_file(settings.signing_key_file)
    except OSError as error:
        raise StartError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise StartError(str(error)) from error


def _page(desk: Desk, sessions: OpenSessions, stop: asyncio.Event) -> Sequence[Route]:
    feeds = Feeds(desk.client, desk.settings.keep_alive_comment_seconds, stop)
    return UiRoutes(feeds, KeptAnswers(ChatRoute(desk), sessions.tasks)).routes()


def _models(client: AsyncClient, settings: HttpSettings) -> ServedModels:
    return ServedModels(
        client,
        settings.tokenizers,
        settings.aliases,
        _tokenizers(settings),
        settings.tool_families,
        patterns=settings.alias_patterns,
        chat_templates=settings.chat_templates,
    )


def _tokenizers(settings: HttpSettings) -> Callable[[str], ModelTokenizer]:
    return partial(
        ModelTokenizer,
        parses_texts=settings.special_tokens_in_text,
        parses_prompts=settings.special_tokens_in_completions,
    )


def _credentials(settings: HttpSettings) -> grpc.ChannelCredentials | None:
    if settings.router_ca is None:
        return None
    try:
        return tls_credentials(ca=settings.router_ca, cert=settings.router_cert, key=settings.router_key)
    except OSError as error:
        raise StartError(f"{error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise StartError(str(error)) from error


async def _load(models: ServedModels) -> None:
    try:
        await models.load()
    except (TokenizerError, plugins.PluginError) as error:
        raise StartError(str(error)) from error


def announce(settings: HttpSettings, address: HostPort, deprecation: Deprecation | None) -> None:
    """Says where it serves, and aloud what is dangerous about that or about to end."""
    for danger in settings.dangers(address.host):
        _log.warning(danger)
    if deprecation is not None:
        _log.warning(deprecation.banner())
    _log.info("serving", address=str(address), router=settings.router)
