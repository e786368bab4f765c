"""Sampling through the whole runtime: every field of GenerateRequest has its effect, on raw ids."""

from typing import Any

import pytest

import kakeya

PROMPT = list(range(20, 60))


async def _generate(client: kakeya.AsyncClient, max_tokens: int = 24, **fields: Any) -> Any:
    async with await client.create_session() as session:
        await session.append(PROMPT)
        async with session.generate(max_tokens=max_tokens, **fields) as generation:
            tokens = [token async for token in generation]
        return tokens, generation


async def test_a_stop_sequence_ends_the_stream_with_itself(client: kakeya.AsyncClient) -> None:
    free, _ = await _generate(client)
    sequence = free[5:8]
    end = next(i + 3 for i in range(len(free)) if free[i : i + 3] == sequence)
    tokens, generation = await _generate(client, stop_token_sequences=[[1, 2, 3, 4], sequence])
    assert tokens == free[:end]
    assert generation.done.stop_reason is kakeya.StopReason.STOP_SEQUENCE
    assert generation.done.history_length == len(PROMPT) + end


async def test_biases_and_penalties(client: kakeya.AsyncClient) -> None:
    free, _ = await _generate(client)
    banned, _ = await _generate(client, logit_bias=dict.fromkeys(set(free), -1000.0))
    assert not set(banned) & set(free)
    forced, _ = await _generate(client, logit_bias={7: 1000.0})
    assert forced == [7] * 24
    for field in ("presence_penalty", "frequency_penalty"):
        penalty: dict[str, Any] = {field: 2.0}
        forced, _ = await _generate(client, logit_bias={7: 1000.0, 8: 999.0, 9: 998.0}, **penalty)
        assert set(forced[:3]) == {7, 8}, field


async def test_a_repetition_penalty_keeps_from_repeating(client: kakeya.AsyncClient) -> None:
    favoured = {7: 1000.0, 8: 900.0}  # far further apart than logits are
    assert (await _generate(client, logit_bias=favoured, repetition_penalty=1.0))[0] == [7] * 24
    penalized, _ = await _generate(client, logit_bias=favoured, repetition_penalty=2.0)
    assert set(penalized[:2]) == {7, 8}
    assert len(set(penalized)) > 1


async def test_ends_do_not_come_before_the_least_number_of_tokens_or_never(client: kakeya.AsyncClient) -> None:
    """The EOS token is the likeliest, always."""
    async with await client.create_session(eos_token_ids=[7]) as session:
        await session.append(PROMPT)
        for asked, num_tokens, reason in (
            ({}, 1, kakeya.StopReason.EOS),
            ({"min_tokens": 5}, 6, kakeya.StopReason.EOS),
            ({"min_tokens": 12}, 12, kakeya.StopReason.MAX_TOKENS),
            ({"ignore_eos": True}, 12, kakeya.StopReason.MAX_TOKENS),
        ):
            fields: dict[str, Any] = dict(asked)
            async with session.generate(max_tokens=12, logit_bias={7: 1000.0}, **fields) as generation:
                tokens = [token async for token in generation]
            assert generation.done is not None
            assert (len(tokens), generation.done.stop_reason) == (num_tokens, reason)
            assert 7 not in tokens[: -1 if reason is kakeya.StopReason.EOS else None]


async def test_appended_tokens_are_worth_what_they_are_when_generated(client: kakeya.AsyncClient) -> None:
    tokens, generation = await _generate(client, logprobs=3)
    async with await client.create_session() as session:
        appended = await session.append([*PROMPT, *tokens], logprobs=3)
    assert [detail.token_id for detail in appended.details] == [*PROMPT[1:], *tokens]
    for found, expected in zip(appended.details[-len(tokens) :], generation.details, strict=True):
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert found.top_logprobs == pytest.approx(expected.top_logprobs, abs=1e-3)


async def test_min_p_of_one_is_greedy(client: kakeya.AsyncClient) -> None:
    greedy, _ = await _generate(client)
    assert (await _generate(client, temperature=1.5, min_p=1.0, seed=3))[0] == greedy
    assert (await _generate(client, temperature=1.5, seed=3))[0] != greedy


async def test_logprobs_are_of_the_raw_logits(client: kakeya.AsyncClient) -> None:
    tokens, generation = await _generate(client, max_tokens=6, logprobs=3)
    assert [detail.token_id for detail in generation.details] == tokens
    for token, detail in zip(tokens, generation.details, strict=True):
        assert len(detail.top_logprobs) == 3
        assert next(iter(detail.top_logprobs)) == token, "greedy takes the likeliest"
        assert detail.top_logprobs[token] == detail.logprob <= 0
        descending = list(detail.top_logprobs.values())
        assert descending == sorted(descending, reverse=True)
    forced, biased = await _generate(client, max_tokens=1, logprobs=0, logit_bias={7: 1000.0})
    assert forced == [7]
    assert biased.details[0].top_logprobs == {}
    assert biased.details[0].logprob < generation.details[0].logprob, "the bias is not in it"
    _, plain = await _generate(client, max_tokens=2)
    assert plain.details == []


async def test_two_halves_are_one_whole(client: kakeya.AsyncClient) -> None:
    whole, _ = await _generate(client, max_tokens=20, temperature=1.0, top_p=0.95, seed=11)
    async with await client.create_session() as session:
        await session.append(PROMPT)
        halves: list[int] = []
        for _ in range(2):
            async with session.generate(max_tokens=10, temperature=1.0, top_p=0.95, seed=11) as generation:
                halves += [token async for token in generation]
    assert halves == whole


@pytest.mark.parametrize(
    "fields",
    [
        {"min_p": 1.5},
        {"min_p": float("nan")},
        {"presence_penalty": 2.5},
        {"frequency_penalty": float("inf")},
        {"repetition_penalty": 0.0},
        {"repetition_penalty": 2.5},
        {"min_tokens": 2},
        {"logit_bias": {0: float("nan")}},
        {"logit_bias": {1024: 1.0}},
        {"logit_bias": dict.fromkeys(range(1025), 1.0)},
        {"logprobs": 21},
        {"stop_token_sequences": [[]]},
        {"stop_token_sequences": [[1]] * 17},
        {"stop_token_sequences": [[1] * 65]},
        {"stop_token_sequences": [[4096]]},
    ],
)
async def test_bad_values_are_refused_and_change_nothing(client: kakeya.AsyncClient, fields: dict[str, Any]) -> None:
    async with await client.create_session() as session:
        await session.append(PROMPT)
        with pytest.raises(kakeya.InvalidRequest) as caught:
            await session.generate(max_tokens=1, **fields).all()
        assert next(iter(fields)) in (caught.value.metadata.get("field"), str(caught.value).split(":")[0])
        assert (await session.info()).history_length == len(PROMPT)
