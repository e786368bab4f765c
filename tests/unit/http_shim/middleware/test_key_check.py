"""Keys, before anything of a request's body is read."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.middleware.key_check import KeyCheck
from kakeya_http_shim.problems import ApiError, bad_key
from tests.unit.http_shim.served import answer, raw_client


async def tell_key(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, repr(scope["state"].get("api_key")).encode())


class Checked:
    """Which keys were asked about; "bad" is not good."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    async def __call__(self, key: str) -> None:
        await asyncio.sleep(0)
        self.keys.append(key)
        if key == "bad":
            raise bad_key()


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ("", ""),
        ("Authorization: Bearer sk-1\r\n", "sk-1"),
        ("authorization:bearer   sk-1  \r\n", "sk-1"),
        ("Authorization: Bearer\r\n", ""),
        ("Authorization: Bearer \r\n", ""),
        ("Authorization: Bearer ~!,;=/+\r\n", "~!,;=/+"),
        ("x-api-key: sk-1\r\n", "sk-1"),
        ("X-Api-Key:  sk-1 \r\n", "sk-1"),
        ("x-api-key:\r\n", ""),
        ("x-api-key: sk-1\r\nAuthorization: Bearer sk-2\r\n", "sk-2"),
    ],
)
async def test_the_key_is_asked_about_and_kept(headers: str, key: str) -> None:
    check = Checked()
    async with raw_client(KeyCheck(tell_key, check)) as client:
        assert (await client.get("/v1/models", headers=headers)).body == repr(key).encode()
    assert check.keys == [key]


@pytest.mark.parametrize(
    "headers",
    [
        "Authorization: Basic dTpw\r\n",
        "Authorization: sk-1\r\n",
        "Authorization:\r\n",
        "Authorization: Bearer sk 1\r\n",
        "Authorization: Bearer sk\t1\r\n",
        "Authorization: Bearer schlüssel\r\n",
        "Authorization: Bearer a\r\nAuthorization: Bearer a\r\n",
        "Authorization: Bearer bad\r\n",
        f"Authorization: Bearer {'k' * 4097}\r\n",
        "x-api-key: sk 1\r\n",
        "x-api-key: bad\r\n",
        "x-api-key: a\r\nx-api-key: a\r\n",
        f"x-api-key: {'k' * 4097}\r\n",
        "Authorization: sk-1\r\nx-api-key: sk-1\r\n",
    ],
)
async def test_what_is_no_good_key_gets_401(headers: str) -> None:
    check = Checked()
    async with raw_client(KeyCheck(tell_key, check)) as client:
        refusal = await client.get("/v1/models", headers=headers)
    assert (refusal.status, refusal.code) == (401, "invalid_api_key")
    assert refusal.headers["www-authenticate"] == "Bearer"
    assert check.keys in ([], ["bad"])


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("GET", path) for path in ("/", "/healthz", "/health", "/ping", "/v10")), ("OPTIONS", "/v1/models")],
)
async def test_other_paths_and_preflights_need_no_key(method: str, path: str) -> None:
    check = Checked()
    async with raw_client(KeyCheck(tell_key, check)) as client:
        told = await client.get(path, method, "Authorization: Bearer bad\r\n")
    assert (told.body, check.keys) == (b"None", [])


async def test_the_bare_prefix_is_part_of_the_api() -> None:
    check = Checked()
    async with raw_client(KeyCheck(tell_key, check)) as client:
        assert (await client.get("/v1", headers="Authorization: Bearer bad\r\n")).status == 401


async def test_a_bad_key_is_refused_before_the_body_comes() -> None:
    async with raw_client(KeyCheck(tell_key, Checked())) as client:
        await client.send(
            "POST /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer bad\r\nContent-Length: 9999999\r\n\r\n"
        )
        refusal = await client.answer()
        assert (refusal.status, refusal.headers["connection"]) == (401, "close")
        assert await client.is_closed()


def scope_of(path: str = "/v1/models", **more: Any) -> Scope:
    return {"type": "http", "method": "GET", "path": path, "headers": [], **more}


async def nothing() -> Message:
    raise AssertionError("nobody may read")


async def unheard(message: Message) -> None:
    raise AssertionError("nobody may answer")


async def test_an_error_of_the_app_is_the_apps() -> None:
    async def fail(scope: Scope, receive: Receive, send: Send) -> None:
        raise ApiError(418, "not of the check")

    with pytest.raises(ApiError, match="not of the check"):
        await KeyCheck(fail, Checked())(scope_of(), nothing, unheard)


async def test_a_failing_or_cancelled_check_is_not_swallowed() -> None:
    for failure in (ValueError, asyncio.CancelledError):

        async def check(key: str, failure: type[BaseException] = failure) -> None:
            raise failure

        with pytest.raises(failure):
            await KeyCheck(tell_key, check)(scope_of(), nothing, unheard)


async def test_other_protocols_pass() -> None:
    seen: list[str] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    await KeyCheck(note, Checked())({"type": "lifespan"}, nothing, unheard)
    assert seen == ["lifespan"]
