"""Names of requests: the client's, or ours."""

import re

import pytest
import structlog
from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.middleware.request_ids import RequestIds
from kakeya_http_shim.problems import ApiError
from tests.unit.http_shim.served import answer, raw_client

OURS = re.compile(r"req_[0-9a-f]{32}")


async def tell(scope: Scope, receive: Receive, send: Send) -> None:
    """What the app and its log lines know."""
    logged = structlog.contextvars.get_contextvars().get("request_id")
    assert logged == scope["state"]["request_id"]
    await answer(send, logged.encode(), 404 if scope["path"] == "/nowhere" else 200, x_request_id="of the app")


@pytest.mark.parametrize("given", ["a", "x" * 128, "~!'\"{}"])
async def test_a_clients_name_is_kept(given: str) -> None:
    async with raw_client(RequestIds(tell)) as client:
        reply = await client.get(headers=f"X-Request-ID: {given}\r\n")
    assert (reply.body.decode(), reply.headers["x-request-id"]) == (given, given)


@pytest.mark.parametrize(
    "headers",
    [
        *("", "x-request-id:\r\n", "x-request-id: a b\r\n", "x-request-id: ä\r\n"),
        *(f"x-request-id: {'x' * 129}\r\n", "x-request-id: a\r\nx-request-id: a\r\n"),
    ],
)
async def test_another_gets_one_of_ours(headers: str) -> None:
    async with raw_client(RequestIds(tell)) as client:
        replies = [await client.get(path, headers=headers) for path in ("/", "/nowhere")]
    names = [reply.headers["x-request-id"] for reply in replies]
    assert all(OURS.fullmatch(name) for name in names)
    assert [reply.body.decode() for reply in replies] == names
    assert len(set(names)) == 2


async def test_clients_of_anthropics_api_know_it_by_another_name() -> None:
    async with raw_client(RequestIds(tell)) as client:
        of_messages = await client.get("/v1/messages", headers="x-request-id: a\r\n")
        other = await client.get("/v1/models", headers="x-request-id: a\r\n")
    assert (of_messages.headers["request-id"], of_messages.headers["x-request-id"]) == ("a", "a")
    assert "request-id" not in other.headers


async def test_nothing_is_left_of_a_name_when_its_request_has_failed() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ApiError(418, "as it happens")

    with pytest.raises(ApiError):
        await RequestIds(fail)({"type": "http", "headers": []}, nothing, unheard)
    assert structlog.contextvars.get_contextvars() == {}


async def nothing() -> Message:
    raise AssertionError("nobody may read")


async def unheard(message: Message) -> None:
    raise AssertionError("nobody may answer")


async def test_other_protocols_pass() -> None:
    seen: list[Scope] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    await RequestIds(note)({"type": "lifespan"}, nothing, unheard)
    assert seen == [{"type": "lifespan"}]
