"""What every answer says of the API's end."""

from starlette.types import Message, Receive, Scope, Send

from kakeya_http_shim.middleware.deprecation import Deprecation, DeprecationHeaders
from kakeya_http_shim.settings import HttpSettings
from tests.unit.http_shim.served import answer, raw_client

SINCE = ["--deprecated-since", "2023-06-30"]
ALL = [*SINCE, "--sunset", "2024-06-30", "--successor", "https://example.com/v2"]


def of(flags: list[str]) -> Deprecation:
    deprecation = Deprecation.from_settings(HttpSettings.parse(flags))
    assert deprecation is not None
    return deprecation


def test_without_the_flag_there_is_nothing_to_say() -> None:
    assert Deprecation.from_settings(HttpSettings.parse([])) is None


def test_the_headers_are_those_of_the_rfcs() -> None:
    assert of(SINCE).headers() == {"deprecation": "@1688083200"}
    assert of(ALL).headers() == {
        "deprecation": "@1688083200",
        "sunset": "Sun, 30 Jun 2024 00:00:00 GMT",
        "link": '<https://example.com/v2>; rel="successor-version"',
    }


def test_the_banner_is_one_line() -> None:
    assert of(SINCE).banner() == "this HTTP API is deprecated since 2023-06-30"
    end = "gone on 2024-06-30; its successor: https://example.com/v2"
    assert of(ALL).banner() == f"this HTTP API is deprecated since 2023-06-30, {end}"


async def linking(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, status=404 if scope["path"] == "/nowhere" else 200, link="</docs>; rel=help")


async def test_every_answer_has_them_beside_its_own() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def nothing() -> Message:
        raise AssertionError("nobody may read")

    for path in ("/", "/nowhere"):
        await DeprecationHeaders(linking, of(ALL).headers())({"type": "http", "path": path}, nothing, send)
    for start in sent[::2]:
        links = [value for name, value in start["headers"] if name == b"link"]
        assert links == [b"</docs>; rel=help", b'<https://example.com/v2>; rel="successor-version"']


async def test_they_arrive() -> None:
    async with raw_client(DeprecationHeaders(linking, of(SINCE).headers())) as client:
        assert (await client.get()).headers["deprecation"] == "@1688083200"


async def test_nothing_is_added_where_there_is_nothing() -> None:
    async with raw_client(DeprecationHeaders(linking, {})) as client:
        assert (await client.get()).headers.keys() == {"link", "content-length", "date"}
