"""Drafts through the whole runtime: the same tokens in fewer steps, counted, in sessions that ask for them."""

import pytest

import kakeya
from tests.soak.chaos.conversation import difference, hold, script


async def _answer(session: kakeya.AsyncSession) -> tuple[list[int], kakeya.GenerateResult]:
    biased = {7: 30.0, 8: 30.0, 9: 30.0}  # so that runs come again
    async with session.generate(max_tokens=80, temperature=1.0, seed=5, logit_bias=biased) as generation:
        tokens = [token async for token in generation]
    assert generation.done is not None
    return tokens, generation.done


async def test_a_session_that_drafts_says_the_same(client: kakeya.AsyncClient) -> None:
    found = {}
    for speculation in ("none", "ngram"):
        async with await client.create_session(speculation=speculation) as session:
            await session.append(range(50))
            found[speculation] = await _answer(session)
            again, info = (await _answer(session))[1], await session.info()
            dones = (found[speculation][1], again)
            assert info.num_drafted_tokens == sum(done.num_drafted_tokens for done in dones)
            assert info.num_accepted_tokens == sum(done.num_accepted_tokens for done in dones)
    plain, drafting = found["none"], found["ngram"]
    assert drafting[0] == plain[0]
    assert (plain[1].num_drafted_tokens, plain[1].num_accepted_tokens) == (0, 0)
    assert 0 < drafting[1].num_accepted_tokens <= drafting[1].num_drafted_tokens


async def test_a_fork_drafts_as_its_source(client: kakeya.AsyncClient) -> None:
    async with await client.create_session(speculation="ngram") as session:
        await session.append(range(50))
        async with await client.create_session(fork_from=session) as fork:
            tokens, done = await _answer(fork)
        assert tokens == (await _answer(session))[0]
    assert done.num_accepted_tokens > 0


async def test_a_proposer_that_nobody_has_is_refused(client: kakeya.AsyncClient) -> None:
    with pytest.raises(kakeya.InvalidField, match="no proposer is named 'medusa'") as caught:
        await client.create_session(speculation="medusa")
    assert caught.value.metadata["field"] == "speculation"


@pytest.mark.parametrize("in_one_call", [False, True])
async def test_a_conversation_of_the_chaos_run_is_the_same_with_drafts(
    client: kakeya.AsyncClient, in_one_call: bool
) -> None:
    turns = script(1)
    assert any(turn.says_little for turn in turns)
    plain = await hold(client, turns)
    drafting = await hold(client, turns, in_one_call=in_one_call, speculation="ngram")
    assert not difference(drafting, plain)
    assert (plain.num_accepted, drafting.num_accepted > 0) == (0, True)
