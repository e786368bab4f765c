"""Live sessions under chat templates that are no plain ones: of a model that thinks, and such as write the past anew.

The client is the `openai` package, unmodified. It sends whole conversations, and of its answers their contents.
"""

import shutil
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_shared import installed_models
from tests.checkpoints import save_reciting
from tests.integration.http_stack import HttpStack, http_stack
from tests.integration.open_http import ENDLESS, MODEL
from tests.integration.processes import runtime
from tests.unit.sdk import families

LIVE = ("--live-sessions", "on")
THINKER = "thinker"
ANSWER = ("<think>", "H", "m", "</think>", "Y", "e", "s", ".", "<|im_end|>")
"""What the model says behind a line feed, which begins each of its turns."""
NUM_TURNS = 25
VOCAB_SIZE = 512

REWRITING = {
    "backwards": "{% for m in messages | reverse %}",
    "twice": "{% for m in messages + messages %}",
    "answers at the end": "{% for m in messages | sort(attribute='role', reverse=true) %}",
}
"""What chat templates go through. Some repeat messages, others put them in another order."""
_WRITES = (
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def said(raw: Any) -> dict[str, Any]:
    """What an answer says of its session."""
    session: dict[str, Any] = raw.parse().usage.kakeya["session"]
    assert raw.headers["kakeya-session"].startswith(f"{session['state']}; id={session['id']}; ")
    return session


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Tokenizer]]:
    """The address of a stack whose model thinks before each answer, under a template of Qwen3's kind; its tokenizer."""
    directory = tmp_path_factory.mktemp("thinker")
    families.save(directory / "tokenizer", families.ONES["qwen3"])
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer" / "tokenizer.json"))
    (feed,) = tokenizer.encode("\n").ids
    ids = [feed, *(tokenizer.get_vocab()[token] for token in ANSWER)]
    model = save_reciting(directory / "model", VOCAB_SIZE, dict(pairwise(ids)))
    with runtime(model, directory, num_workers=0) as made:
        made.start_worker("--served-model-name", THINKER, "--weights", "int8", lanes=2)
        made.wait_for_workers(1)
        shim = made.start_http(*LIVE, "--tokenizer", f"{THINKER}={directory / 'tokenizer'}")
        yield shim.address, tokenizer


async def test_thoughts_stay_where_they_were_said(thinker: tuple[str, Tokenizer]) -> None:
    address, tokenizer = thinker
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    history, session_id = 0, ""
    async with openai.AsyncOpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0) as client:
        for turn in range(1, NUM_TURNS + 1):
            text = f"Question {turn}?"
            messages.append({"role": "user", "content": text})
            raw = await client.chat.completions.with_raw_response.create(
                model=THINKER, messages=messages, temperature=0, max_tokens=40
            )
            answer, session = raw.parse(), said(raw)
            message = answer.choices[0].message
            assert (message.content, message.reasoning_content) == ("Yes.", "Hm")  # type: ignore[attr-defined]  # not OpenAI's
            messages.append({"role": "assistant", "content": message.content})
            behind = f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
            if turn == 1:
                assert (session["state"], session["why"]) == ("new", "first-turn")
                session_id, history = session["id"], 0
                behind = "<|im_start|>system\nBe brief.<|im_end|>" + behind
            else:
                assert (session["state"], session["why"], session["id"]) == ("continued", "next-turn", session_id), turn
            assert session["appended"] == len(tokenizer.encode(behind).ids), turn
            assert session["reused"] == history, "with all thoughts up to here"
            assert answer.usage is not None
            assert answer.usage.completion_tokens == len(ANSWER)
            history += session["appended"] + len(ANSWER)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    directory = tmp_path_factory.mktemp("rewriting")
    with http_stack(directory, *LIVE, KAKEYA_WORKER_SNAPSHOTS=str(directory / "snapshots")) as made:
        # Each turn is a new session. With a lane for each, none is closed to make room for another.
        made.runtime.start_worker("--weights=int8", lanes=24)
        made.runtime.wait_for_workers(2)
        yield made


@pytest.fixture(params=REWRITING)
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> ChatTokenizer:
    """Of kakeya-nano, with another chat template."""
    files = installed_models.directory(MODEL)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"):
        shutil.copy(files / name, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(REWRITING[request.param] + _WRITES)
    return ChatTokenizer(str(tmp_path))


@pytest.fixture
async def clients(stack: HttpStack, tokenizer: ChatTokenizer) -> AsyncIterator[list[openai.AsyncOpenAI]]:
    """Of a shim with live sessions, and of one without."""
    about = ("--tokenizer", f"{MODEL}={tokenizer.name}")
    live, stateless = (stack.runtime.start_http(*LIVE, *about), stack.runtime.start_http("--live-sessions=off", *about))
    made = [
        openai.AsyncOpenAI(base_url=f"http://{shim.address}/v1", api_key=stack.key, max_retries=0)
        for shim in (live, stateless)
    ]
    yield made
    for client in made:
        await client.close()


async def test_what_writes_the_past_anew_is_rendered_anew_and_says_so(
    clients: list[openai.AsyncOpenAI], tokenizer: ChatTokenizer
) -> None:
    live, stateless = clients
    messages: list[Any] = []
    ids: list[str] = []
    for turn in range(1, 6):
        messages.append({"role": "user", "content": f"What is {turn} plus {turn}?"})
        given: Any = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 8, "logit_bias": ENDLESS}
        raw = await live.chat.completions.with_raw_response.create(**given)
        answer, session = raw.parse(), said(raw)
        assert session["state"] == "new", turn
        assert session["why"] == ("first-turn" if turn == 1 else "template")
        assert (session["appended"], session["reused"]) == (len(tokenizer.prompt(messages)), 0)
        ids.append(session["id"])
        alone = await stateless.chat.completions.create(**given)
        assert answer.choices[0].message.content == alone.choices[0].message.content
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
    assert len({*ids}) == len(ids)
    del messages[-1]
    again = said(await live.chat.completions.with_raw_response.create(**given))
    assert (again["why"], again["appended"]) == ("regenerated", 0), "the same messages, so the same beginning"
