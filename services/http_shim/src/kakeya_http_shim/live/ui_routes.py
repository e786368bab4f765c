"""The live page: its files, its feed of what runs, and its answers."""

import hashlib
import json
import mimetypes
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from importlib import resources
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from kakeya import KakeyaError
from kakeya_http_shim.live.feeds import Feeds
from kakeya_http_shim.live.kept_answers import KeptAnswers
from kakeya_http_shim.problems import ApiError, from_kakeya

_PAGE: Final = "index.html"
_FOLDER: Final = "page"
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for each time, and answered by 304
}
_CHAT: Final = "/v1/chat/completions"
_ID: Final = re.compile(r"[A-Za-z0-9-]{16,64}")
"""Of an answer: random, made by the page."""


@dataclass(frozen=True)
class PageFile:
    """A file of the page; `tag` changes with what is in it."""

    content: bytes
    media_type: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """All files that the page consists of, by name."""
    folder = resources.files("kakeya_http_shim").joinpath(_FOLDER)
    return {each.name: _file(each.name, each.read_bytes()) for each in folder.iterdir()}


def _file(name: str, content: bytes) -> PageFile:
    media_type = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "text/plain"
    return PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


class UiRoutes:
    """What `/ui` and all below it answers."""

    def __init__(self, feeds: Feeds, answers: KeptAnswers) -> None:
        self._feeds = feeds
        self._answers = answers
        self._files: Mapping[str, PageFile] = page_files()

    def routes(self) -> list[Route]:
        return [
            Route("/ui", self.page),
            Route("/ui/events", self.events),
            Route("/ui/answers/{id}", self.ask, methods=["POST"]),
            Route("/ui/answers/{id}", self.read, methods=["GET"]),
            Route("/ui/answers/{id}", self.leave, methods=["DELETE"]),
            Route("/ui/{name}", self.file),
        ]

    async def page(self, request: Request) -> Response:
        return self._answer(request, self._files[_PAGE])

    async def file(self, request: Request) -> Response:
        """Raises ApiError: there is none of that name."""
        found = self._files.get(request.path_params["name"])
        if found is None:
            raise ApiError(404, f"Not Found: {request.method} {request.url.path}", code="unknown_url")
        return self._answer(request, found)

    async def events(self, request: Request) -> Response:
        """Server-sent events; see `board_json`."""
        return StreamingResponse(
            self.said(request.state.api_key), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def ask(self, request: Request) -> ASGIApp:
        """A chat; its answer, as `/v1/chat/completions` gives it. Raises ApiError."""
        body = await request.body()
        return self._answers.ask(_id(request), {**request.scope, "path": _CHAT, "raw_path": _CHAT.encode()}, body)

    async def read(self, request: Request) -> ASGIApp:
        """The same answer once more, from its first byte on. Raises ApiError."""
        return self._answers.find(_id(request), request.state.api_key)

    async def leave(self, request: Request) -> Response:
        """Nobody wants more of an answer. Raises ApiError."""
        self._answers.find(_id(request), request.state.api_key).leave()
        return Response(status_code=204)

    def _answer(self, request: Request, found: PageFile) -> Response:
        headers = {**_HEADERS, "etag": found.tag}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)

    async def said(self, api_key: str) -> AsyncIterator[str]:
        try:
            async with aclosing(self._feeds.events(api_key)) as events:
                async for event in events:
                    yield ": quiet\n\n" if event is None else f"data: {json.dumps(event, separators=(',', ':'))}\n\n"
        except KakeyaError as error:
            yield f"event: error\ndata: {json.dumps(from_kakeya(error).body())}\n\n"


def _id(request: Request) -> str:
    """Raises ApiError."""
    answer_id: str = request.path_params["id"]
    if not _ID.fullmatch(answer_id):
        raise ApiError(400, "the id of an answer has 16 to 64 letters, digits and dashes", code="invalid_value")
    return answer_id
