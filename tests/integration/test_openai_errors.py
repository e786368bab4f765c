"""The `openai` package, unmodified: what goes wrong comes as the class of error that its users catch."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

import kakeya
from kakeya_stubs.admin.v1.admin_pb2 import SCOPE_ADMIN, Quota
from tests.integration.http_stack import ABSENT, HttpStack, start_worker
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.processes import Process, wait_until

HELLO: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}

Error = openai.APIStatusError


@pytest.fixture
async def client(http: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=http.base_url, api_key=http.key, max_retries=0) as client:
        yield client


async def refusal(client: openai.AsyncOpenAI, kind: type[Error], **fields: Any) -> Error:
    """What a request gets that must be refused, as just this class."""
    with pytest.raises(Error) as caught:
        await client.chat.completions.create(**{**HELLO, **fields})
    assert type(caught.value) is kind
    assert caught.value.request_id
    assert caught.value.request_id == caught.value.response.headers["x-request-id"]
    assert isinstance(caught.value.body, dict)
    assert caught.value.body.keys() == {"message", "type", "param", "code"}
    return caught.value


def retry_after_seconds(error: Error) -> int:
    return int(error.response.headers["retry-after"])


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 3}, "temperature", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": [{"role": "judge", "content": "?"}]}, "messages[0].role", "invalid_value"),
        ({"n": 9}, "n", "invalid_value"),
        ({"logit_bias": {"2048": 1}}, "logit_bias", "invalid_value"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type", "unsupported_parameter"),
        ({"extra_body": {"surprise": 1}}, "surprise", "unknown_parameter"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_requests(
    client: openai.AsyncOpenAI, fields: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    error = await refusal(client, openai.BadRequestError, **fields, stream=stream)
    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert (error.param, error.code) == (param, code)
    assert param.split("[")[0] in error.message


async def test_wrong_keys(http: HttpStack, client: openai.AsyncOpenAI) -> None:
    for key in ("sk-nonsense", http.key[:-1] + ("A" if http.key[-1] != "A" else "B")):
        error = await refusal(client.copy(api_key=key), openai.AuthenticationError)
        assert (error.status_code, error.code) == (401, "invalid_api_key")
        assert error.response.headers["www-authenticate"] == "Bearer"
        assert key not in str(error)


async def test_keys_that_may_not(http: HttpStack, client: openai.AsyncOpenAI) -> None:
    of_operator = http.operator.make_key("operators", SCOPE_ADMIN)
    error = await refusal(client.copy(api_key=of_operator), openai.PermissionDeniedError)
    assert (error.status_code, error.type) == (403, "permission_error")


async def test_unknown_models(client: openai.AsyncOpenAI) -> None:
    error = await refusal(client, openai.NotFoundError, model="gpt-17")
    assert (error.status_code, error.param, error.code) == (404, "model", "model_not_found")
    with pytest.raises(openai.NotFoundError, match="gpt-17"):
        await client.models.retrieve("gpt-17")


async def test_unknown_urls(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.embeddings.create(model=MODEL, input="Hello")
    assert caught.value.code == "unknown_url"


async def test_quotas(http: HttpStack, client: openai.AsyncOpenAI) -> None:
    key = http.operator.make_key("modest")
    http.operator.set_quota("modest", Quota(max_sessions=1))
    modest = client.copy(api_key=key)
    async with kakeya.AsyncClient(http.runtime.address, api_key=key) as sdk, await sdk.create_session():
        error = await refusal(modest, openai.RateLimitError)
        streamed = await refusal(modest, openai.RateLimitError, stream=True)
    assert (error.status_code, error.type, error.code) == (429, "rate_limit_error", "quota_exceeded")
    assert retry_after_seconds(error) >= 1
    assert (streamed.code, retry_after_seconds(streamed) >= 1) == ("quota_exceeded", True)
    assert await modest.chat.completions.create(**HELLO), "the session is closed, so there is room again"


@pytest.mark.heavy
async def test_retry_after_is_kept_by_the_package_itself(http: HttpStack, client: openai.AsyncOpenAI) -> None:
    key = http.operator.make_key("patient")
    http.operator.set_quota("patient", Quota(max_sessions=1))
    async with kakeya.AsyncClient(http.runtime.address, api_key=key) as sdk:
        session = await sdk.create_session()
        asked = asyncio.create_task(client.copy(api_key=key, max_retries=2).chat.completions.create(**HELLO))
        await asyncio.sleep(0.5)
        assert not asked.done()
        await session.close()
        assert (await asked).choices


async def test_models_without_workers(client: openai.AsyncOpenAI) -> None:
    error = await refusal(client, openai.InternalServerError, model=ABSENT)
    assert (error.status_code, error.type, error.code) == (503, "server_error", "no_worker")
    assert retry_after_seconds(error) >= 1


async def test_conversations_that_do_not_fit(client: openai.AsyncOpenAI) -> None:
    refuse: dict[str, Any] = {"extra_body": {"kakeya": {"on_overflow": "refuse"}}}
    long = {"messages": [{"role": "user", "content": "Hello. " * 40}]}
    for stream in (False, True):
        error = await refusal(client, openai.BadRequestError, **long, **refuse, stream=stream)
        assert (error.status_code, error.code) == (400, "context_length_exceeded")
    assert await client.chat.completions.create(**{**HELLO, **long}), "unless it may be forgotten"
    assert await client.chat.completions.create(**{**HELLO, **refuse}), "what fits is not refused"


@pytest.fixture
def mortal(http: HttpStack) -> Iterator[Process]:
    """The only worker; another takes its place at the end."""
    yield (mortal := http.runtime.workers[-1])
    if http.runtime.workers[-1] is mortal and mortal.process.poll() is not None:
        succeed(http, mortal)


def succeed(http: HttpStack, mortal: Process) -> None:
    """Another worker in the place of one that was killed."""
    http.runtime.lapse(mortal)
    successor = start_worker(http.runtime)
    wait_until(
        lambda: [worker.address for worker in http.runtime.list_workers()] == [successor.address],
        "the killed worker is forgotten and another has joined",
    )


async def test_a_worker_that_dies_in_mid_stream(http: HttpStack, client: openai.AsyncOpenAI, mortal: Process) -> None:
    """The client sees a pause: another worker goes on where it was."""
    long = {**HELLO, "max_tokens": 2_000, "logit_bias": ENDLESS, "stream": True, "seed": 3, "temperature": 1.0}
    texts = []
    for is_disturbed in (False, True):
        chunks: list[ChatCompletionChunk] = []
        replacing: asyncio.Future[None] | None = None
        async for chunk in await client.chat.completions.create(**long):
            chunks.append(chunk)
            if is_disturbed and len(chunks) == 8:
                mortal.kill()
                replacing = asyncio.ensure_future(asyncio.to_thread(succeed, http, mortal))
        if replacing is not None:
            await replacing
        choices = [choice for chunk in chunks for choice in chunk.choices]
        assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["length"]
        texts.append("".join(choice.delta.content or "" for choice in choices))
    assert texts[0] == texts[1]


@pytest.mark.heavy
async def test_the_only_worker_has_died(client: openai.AsyncOpenAI, mortal: Process) -> None:
    mortal.kill()
    error = await refusal(client, openai.InternalServerError)
    assert (error.status_code, error.type, retry_after_seconds(error) >= 1) == (503, "server_error", True)
