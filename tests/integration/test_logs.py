"""The logs of a whole run: one line for each call, which one trace id leads to, and nothing of what was said."""

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

import kakeya
from tests.integration.http_stack import HttpStack, http_stack, prompt_ids, text_ids
from tests.integration.open_http import MODEL
from tests.integration.processes import LONG_SECONDS, Process, wait_until

WORD = "rhododendron"
"""In every text that clients send here, and in nothing else."""
FUNCTION = {
    "name": WORD,
    "description": WORD,
    "parameters": {"type": "object", "properties": {WORD: {"type": "string"}}},
}
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TURN = "kakeya.v1.RuntimeService/Turn"
APPEND, GENERATE = (f"kakeya.worker.v1.VerifierService/{name}" for name in ("Append", "Generate"))
ENDLESS = {str(text_ids("<|im_end|>")[0]): -100}
NUM_IN_A_ROW = 4


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStack]:
    """It logs all that it has to say."""
    directory = tmp_path_factory.mktemp("logged")
    levels = {f"KAKEYA_{part}_LOG_LEVEL": "debug" for part in ("ROUTER", "WORKER", "HTTP")}
    snapshots = str(directory / "snapshots")
    with http_stack(directory, "--live-sessions=on", KAKEYA_WORKER_SNAPSHOTS=snapshots, **levels) as made:
        for _ in range(2):  # with room for a system message and tools
            made.runtime.start_worker("--weights=int8", "--window=508")
        made.runtime.wait_for_workers(3)
        assert made.runtime.workers[0].terminate() == 0
        yield made


class Said:
    """What clients have said and heard: texts, and tokens by their ids."""

    def __init__(self) -> None:
        self.texts = [WORD]
        self.ids: list[Sequence[int]] = []

    def heard(self, text: str) -> None:
        self.texts += [text[at : at + 20] for at in range(0, len(text) - 20, 20)]
        self.ids.append(text_ids(text))

    def in_log(self, log: str) -> list[str]:
        """What of it stands there."""
        found = [text for text in self.texts if text in log or json.dumps(text)[1:-1] in log]
        for ids in self.ids:
            rows = (ids[at : at + NUM_IN_A_ROW] for at in range(len(ids) - NUM_IN_A_ROW + 1))
            found += [row for row in (", ".join(map(str, each)) for each in rows) if row in log]
        return found


@pytest.fixture(scope="module")
def said(stack: HttpStack) -> Said:
    """Once clients have asked in every way, and much has gone wrong."""
    said = Said()
    headers = {"authorization": f"Bearer {stack.key}", "traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01"}
    with httpx.Client(base_url=stack.base_url, headers=headers, timeout=LONG_SECONDS) as client:
        _ask_well(client, said)
        _ask_badly(client)
        said.heard(_lose_a_worker(stack, client))
    with kakeya.Client(stack.runtime.address, api_key=stack.key) as runtime:
        ids = text_ids(f"{WORD} {WORD} {WORD}")
        said.ids.append(ids)
        with runtime.create_session() as session:
            session.append(ids)
            said.ids.append(list(session.generate(max_tokens=8, temperature=0)))
            session.park()
            session.append(ids)
        with pytest.raises(kakeya.KakeyaError):
            runtime.session("nothing.here").append(ids)
    return said


def _ask_well(client: httpx.Client, said: Said) -> None:
    said.ids.append(prompt_ids(("system", WORD), ("user", WORD)))
    asked: dict[str, Any] = {"model": MODEL, "max_tokens": 40, "stop": [f"{WORD} stop"], "user": WORD}
    messages = [{"role": "system", "content": WORD}, {"role": "user", "content": WORD}]
    chat = client.post("/chat/completions", json=asked | {"messages": messages}).raise_for_status().json()
    said.heard(chat["choices"][0]["message"]["content"] or "")
    forced = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}
    client.post("/chat/completions", json=asked | {"messages": messages} | forced).raise_for_status()
    completion = client.post("/completions", json=asked | {"prompt": WORD, "logprobs": 2}).raise_for_status().json()
    said.heard(completion["choices"][0]["text"])
    client.post("/messages", json={"model": MODEL, "max_tokens": 20, "messages": messages[1:]}).raise_for_status()


def _ask_badly(client: httpx.Client) -> None:
    message = [{"role": "user", "content": WORD}]
    for path, body in (
        ("/chat/completions", {"model": MODEL, "messages": message, WORD: WORD}),
        ("/chat/completions", {"model": MODEL, "messages": [{"role": WORD, "content": WORD}]}),
        ("/chat/completions", {"model": MODEL, "messages": message, "response_format": {"type": WORD}}),
        ("/chat/completions", {"model": MODEL, "messages": message, "temperature": WORD}),
        ("/completions", {"model": MODEL, "prompt": f"{WORD} " * 30_000, "kakeya": {"on_overflow": "refuse"}}),
    ):
        assert 400 <= client.post(path, json=body).status_code < 500, path
    as_json = {"content-type": "application/json"}
    assert client.post("/chat/completions", content=f'{{"{WORD}": {WORD}', headers=as_json).status_code == 400
    assert client.get(f"/{WORD}?{WORD}").status_code == 404
    assert client.get("/models", headers={"authorization": f"Bearer {WORD}"}).status_code == 401


def _lose_a_worker(stack: HttpStack, client: httpx.Client) -> str:
    """In the middle of an answer, which goes on."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": f"{WORD} again"}], "max_tokens": 200}
    more = {"stream": True, "logit_bias": ENDLESS, "seed": 2}
    pieces, is_killed = [], False
    with client.stream("POST", "/chat/completions", json=body | more) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                pieces.append(delta.get("content") or "")
            if len(pieces) == 20 and not is_killed:
                is_killed = True
                os.kill(_holder(stack).process.pid, signal.SIGKILL)
    assert is_killed
    return "".join(pieces)


def _holder(stack: HttpStack) -> Process:
    busy = max(stack.runtime.list_workers(), key=lambda worker: worker.kv_live_bytes)
    return next(each for each in stack.runtime.workers if each.address == busy.address)


def lines_of(log: Path) -> list[dict[str, Any]]:
    """Every line is an object: other libraries' too."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_nothing_that_was_said_is_in_any_log(stack: HttpStack, said: Said) -> None:
    runtime = stack.runtime
    logs = {
        process.log.name: process.log.read_text() for process in (*runtime.routers, *runtime.workers, *runtime.shims)
    }
    assert len(logs) >= 4
    for name, log in logs.items():
        assert said.in_log(log) == [], name
        assert stack.key[-20:] not in log, name


def test_what_was_said_would_be_found(said: Said) -> None:
    assert said.in_log(f'{{"error": "{WORD}"}}') == [WORD]
    assert said.in_log(json.dumps({"request": list(said.ids[0])}))


@pytest.mark.usefixtures("said")
def test_one_trace_id_leads_to_the_line_of_each_call(stack: HttpStack) -> None:
    def all_there() -> bool:
        return len([line for line in lines_of(stack.shim.log) if line.get("trace_id") == TRACE_ID]) >= 6

    wait_until(all_there, "the lines of all requests")
    requests = [line for line in lines_of(stack.shim.log) if line["event"] == "request"]
    chat = next(line for line in requests if line["route"] == "/v1/chat/completions" and line["status"] == "200")
    assert (chat["method"], chat["trace_id"]) == ("POST", TRACE_ID)
    assert chat["prompt_tokens"] == len(prompt_ids(("system", WORD), ("user", WORD)))
    assert 0 < chat["completion_tokens"] <= 40
    calls = [line for line in lines_of(stack.runtime.routers[0].log) if line["event"] == "call"]
    turn = next(line for line in calls if line["method"] == TURN and line["session_id"] == chat["session_id"])
    assert (turn["status"], turn["trace_id"], turn["tenant"]) == ("OK", TRACE_ID, "everybody")
    assert turn["generated"] == chat["completion_tokens"]
    assert turn["responses"] > turn["generated"]
    assert 0 < turn["seconds"] <= chat["seconds"] + 0.1
    told = [line for worker in stack.runtime.workers for line in lines_of(worker.log) if line["event"] == "call"]
    for method in (APPEND, GENERATE):
        (line, *_) = [each for each in told if each["method"] == method and each["session_id"] == chat["session_id"]]
        assert (line["status"], line["trace_id"]) == ("OK", TRACE_ID)


@pytest.mark.usefixtures("said")
def test_a_refusal_is_a_line_with_its_reason(stack: HttpStack) -> None:
    """It is written once the call is over, which its client may know before."""

    def all_there() -> bool:
        calls = [line for line in lines_of(stack.runtime.routers[0].log) if line["event"] == "call"]
        requests = [line for line in lines_of(stack.shim.log) if line["event"] == "request"]
        return {"OK", "SESSION_NOT_FOUND", "UNAUTHENTICATED"} <= {line["status"] for line in calls} and {
            "200",
            "400",
            "401",
            "404",
        } <= {line["status"] for line in requests}

    wait_until(all_there, "the lines of all refusals")
