"""The `openai` package, unmodified: what it asks for it gets. Its errors are in test_openai_errors.py."""

from collections import defaultdict
from collections.abc import AsyncIterable, AsyncIterator
from itertools import pairwise
from typing import Any

import openai
import pytest
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageParam,
    ChatCompletionTokenLogprob,
)

from tests.integration.http_stack import ALIAS, HttpStack, prompt_ids, text_ids
from tests.integration.open_http import ENDLESS, MODEL

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
STORY = "My name is Julia, and my favorite food is"
CUT: dict[str, Any] = {"max_tokens": 24, "logit_bias": ENDLESS, "seed": 11}
"""An answer of 24 tokens exactly, at temperature 1; the same each time."""


@pytest.fixture
async def client(http: HttpStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=http.base_url, api_key=http.key, max_retries=0) as client:
        yield client


async def chat(client: openai.AsyncOpenAI, **fields: Any) -> ChatCompletion:
    answer = await client.chat.completions.create(**{"model": MODEL, "messages": HELLO, **fields})
    assert isinstance(answer, ChatCompletion)
    return answer


async def streamed(client: openai.AsyncOpenAI, **fields: Any) -> list[ChatCompletionChunk]:
    given = {"model": MODEL, "messages": HELLO, "stream": True, **fields}
    chunks: AsyncIterable[ChatCompletionChunk] = await client.chat.completions.create(**given)
    return [chunk async for chunk in chunks]


def texts_of(answer: ChatCompletion) -> list[str]:
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    return [choice.message.content or "" for choice in answer.choices]


def texts_in(chunks: list[ChatCompletionChunk]) -> list[str]:
    """Of each choice, in their order."""
    texts: dict[int, str] = defaultdict(str)
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    return [texts[index] for index in sorted(texts)]


async def test_a_chat_and_what_it_cost(client: openai.AsyncOpenAI) -> None:
    conversation: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "My name is "}, {"type": "text", "text": "Zoë 🦊."}]},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = await chat(client, messages=conversation, temperature=0, max_tokens=40)
    (choice,) = answer.choices
    assert choice.finish_reason == "stop", "the model ends its answer itself"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert (answer.object, answer.model) == ("chat.completion", MODEL)
    assert answer.id.startswith("chatcmpl-")
    assert answer.system_fingerprint
    said = (
        ("system", "Be brief."),
        ("user", "My name is Zoë 🦊."),
        ("assistant", "Hello!"),
        ("user", "What is my name?"),
    )
    num_answer_tokens = len(text_ids(choice.message.content)) + 1  # and the one that ended it
    assert answer.usage
    assert answer.usage.prompt_tokens == len(prompt_ids(*said))
    assert answer.usage.completion_tokens == num_answer_tokens
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + num_answer_tokens
    assert answer.usage.prompt_tokens_details
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


async def test_a_stream_says_what_the_whole_answer_says(client: openai.AsyncOpenAI) -> None:
    whole = await chat(client, **CUT)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage
    assert whole.usage.completion_tokens == 24
    *pieces, last = await streamed(client, **CUT, stream_options={"include_usage": True})
    assert texts_in(pieces) == texts_of(whole)
    assert len(pieces) > 10, "piece by piece"
    assert [piece.choices[0].finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert pieces[0].choices[0].delta.role == "assistant"
    assert {piece.usage for piece in pieces} == {None}
    assert (last.choices, last.usage) == ([], whole.usage)
    assert len({(piece.id, piece.system_fingerprint) for piece in [*pieces, last]}) == 1


async def test_a_stream_has_no_usage_unless_it_is_asked_for(client: openai.AsyncOpenAI) -> None:
    pieces = await streamed(client, **CUT)
    assert all(len(piece.choices) == 1 for piece in pieces)
    assert {piece.usage for piece in pieces} == {None}


async def test_the_streaming_helper_puts_the_answers_together(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": HELLO,
        "temperature": 0.5,
        "seed": 11,
        "n": 3,
        "logprobs": True,
    }
    async with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type async for event in stream}
        answer = await stream.get_final_completion()
    assert kinds >= {"chunk", "content.delta", "content.done", "logprobs.content.delta", "logprobs.content.done"}
    whole = await chat(client, **asked)
    assert [choice.message.content for choice in answer.choices] == texts_of(whole)
    assert [choice.finish_reason for choice in answer.choices] == ["stop"] * 3
    assert [choice.logprobs for choice in answer.choices] == [choice.logprobs for choice in whole.choices]


async def test_stop_texts_even_across_token_borders(client: openai.AsyncOpenAI) -> None:
    whole = await chat(client, **CUT, logprobs=True)
    (text,) = texts_of(whole)
    tokens = [token.token for token in tokens_of(whole)]
    assert "".join(tokens) == text
    across = next(
        left[-1:] + right[:2]
        for left, right in list(pairwise(tokens))[4:]
        if text.index(left[-1:] + right[:2]) > 0 and all(left[-1:] + right[:2] not in token for token in tokens)
    )
    for stop in (across, [across, "never said", "nor this", "\0"], tokens[5]):
        expected = text[: text.index(stop if isinstance(stop, str) else across)]
        stopped = await chat(client, **CUT, stop=stop)
        assert texts_of(stopped) == [expected]
        assert stopped.choices[0].finish_reason == "stop"
        assert stopped.usage
        assert stopped.usage.completion_tokens < 24
        pieces = await streamed(client, **CUT, stop=stop)
        assert texts_in(pieces) == [expected]
        assert pieces[-1].choices[0].finish_reason == "stop"


async def test_a_seed_gives_the_same_answer_again(http: HttpStack, client: openai.AsyncOpenAI) -> None:
    assert all(worker.exact for worker in http.runtime.list_workers())
    first, again, other = [
        await chat(client, **{**CUT, "seed": seed, "temperature": 1}, logprobs=True) for seed in (3, 3, 4)
    ]
    assert texts_of(first) == texts_of(again) != texts_of(other)
    assert tokens_of(first) == tokens_of(again), "to the last bit of its likelihoods"
    assert first.system_fingerprint == again.system_fingerprint == other.system_fingerprint


async def test_without_a_seed_no_two_answers_are_the_same(client: openai.AsyncOpenAI) -> None:
    fields = {"max_tokens": 24, "logit_bias": ENDLESS}
    assert texts_of(await chat(client, **fields)) != texts_of(await chat(client, **fields))


async def test_several_choices_differ(client: openai.AsyncOpenAI) -> None:
    alone, several = await chat(client, **CUT), await chat(client, **CUT, n=2)
    first, second = texts_of(several)
    assert first != second
    assert [first] == texts_of(alone)
    assert several.usage
    assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (len(prompt_ids(("user", "Hello"))), 48)
    assert texts_in(await streamed(client, **CUT, n=2)) == [first, second]


async def test_likelihoods(client: openai.AsyncOpenAI) -> None:
    fields = {**CUT, "temperature": 0, "logprobs": True, "top_logprobs": 3}
    answer = await chat(client, **fields)
    tokens = tokens_of(answer)
    assert len(tokens) == 24
    assert b"".join(bytes(token.bytes or []) for token in tokens).decode() == texts_of(answer)[0]
    for token in tokens:
        likeliest = [each.logprob for each in token.top_logprobs]
        assert len(likeliest) == 3
        assert likeliest == sorted(likeliest, reverse=True)
        assert all(logprob <= 0 for logprob in likeliest)
    followed = [token for token in tokens if token.token == token.top_logprobs[0].token]
    assert len(followed) > 12, "greedy, but where the end of the answer was forbidden"
    assert all(token.logprob == token.top_logprobs[0].logprob for token in followed)
    pieces = await streamed(client, **fields)
    in_pieces = [piece.choices[0].logprobs for piece in pieces]
    assert [token for piece in in_pieces if piece for token in piece.content or []] == tokens
    assert (await chat(client, **CUT)).choices[0].logprobs is None


def tokens_of(answer: ChatCompletion) -> list[ChatCompletionTokenLogprob]:
    logprobs = answer.choices[0].logprobs
    assert logprobs
    assert logprobs.content
    return logprobs.content


async def test_completions(client: openai.AsyncOpenAI) -> None:
    fields: dict[str, Any] = {"model": MODEL, "max_tokens": 12, "logit_bias": ENDLESS, "seed": 5, "logprobs": 2}
    answer = await client.completions.create(prompt=STORY, **fields)
    (choice,) = answer.choices
    assert choice.finish_reason == "length"
    assert answer.usage
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(text_ids(STORY)), 12)
    assert choice.logprobs
    assert choice.logprobs.tokens
    assert "".join(choice.logprobs.tokens) == choice.text
    assert [len(likeliest) for likeliest in choice.logprobs.top_logprobs or []] == [2] * 12
    pieces = [piece async for piece in await client.completions.create(prompt=STORY, **fields, stream=True)]
    assert "".join(piece.choices[0].text for piece in pieces) == choice.text
    assert pieces[-1].choices[0].finish_reason == "length"
    both = await client.completions.create(prompt=[STORY, "Hello"], **fields)
    assert [each.index for each in both.choices] == [0, 1]
    assert both.choices[0].text == choice.text != both.choices[1].text
    (from_tokens,) = (await client.completions.create(prompt=text_ids(STORY), **fields)).choices
    assert from_tokens.text == choice.text


async def test_models(client: openai.AsyncOpenAI) -> None:
    models = {model.id: model async for model in client.models.list()}
    assert models.keys() == {MODEL, ALIAS}
    assert await client.models.retrieve(MODEL) == models[MODEL]
    assert models[MODEL].object == "model"
    assert (await chat(client, **CUT, model=ALIAS)).model == ALIAS


async def test_requests_have_names(client: openai.AsyncOpenAI) -> None:
    raw = client.chat.completions.with_raw_response
    fields: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 1}
    answers = [await raw.create(**fields) for _ in range(2)]
    names = [answer.headers["x-request-id"] for answer in answers]
    assert len(set(names)) == 2
    assert all(names)
    parsed = answers[0].parse()
    assert isinstance(parsed, ChatCompletion)
    assert parsed._request_id == names[0]
    named = await raw.create(**fields, extra_headers={"x-request-id": "mine-17"})
    assert named.headers["x-request-id"] == "mine-17"


async def test_what_was_forgotten_is_said(client: openai.AsyncOpenAI) -> None:
    answer = await chat(client, **{**CUT, "max_tokens": 100})
    assert answer.usage
    history = answer.usage.prompt_tokens + 100
    sight = (answer.usage.model_extra or {})["kakeya"]
    assert sight == {"history": history, "retained": 68, "evicted": history - 68}


async def test_bias_and_penalties_are_honoured(client: openai.AsyncOpenAI) -> None:
    (word,) = text_ids(" the")
    fields = {"max_tokens": 16, "logit_bias": {str(word): 20}, "temperature": 0}
    assert texts_of(await chat(client, **fields)) == [" the" * 16]
    (text,) = texts_of(await chat(client, **fields, frequency_penalty=2))
    assert text.startswith(" the")
    assert text.count(" the") < 16
