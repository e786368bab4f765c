"""The span that tools for language models look for, without a process-wide tracer provider."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from kakeya_http_shim.answers import inference_span
from kakeya_http_shim.middleware import request_span
from tests.exported_spans import ExportedSpans
from tests.unit.http_shim.served import eventually
from tests.unit.http_shim.shim import COMPLETIONS, Shim
from tests.unit.http_shim.shim import shim as serving_shim
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, fails

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"


class Spans(ExportedSpans):
    """Those of requests and of answers."""

    async def told(self, name: str) -> ReadableSpan:
        """Once it is there: a request may end after its answer."""
        await eventually(lambda: bool(self.named(name)))
        return self.only(name)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    return Spans(monkeypatch, request_span, inference_span)


@pytest.fixture
async def traced(spans: Spans, runtime: ScriptedRuntime, tokenizer_dir: Path) -> AsyncIterator[Shim]:
    async with serving_shim(runtime, tokenizer_dir, "--live-sessions", "on") as shim:
        yield shim


async def test_a_chat(traced: Shim, spans: Spans) -> None:
    traced.will_say("Hi")
    answer = await traced.chat(max_tokens=9, top_p=0.5, seed=7)
    span = await spans.told("chat counter")
    request = await spans.told("POST /v1/chat/completions")
    assert span.parent is not None
    assert span.parent.span_id == request.context.span_id
    assert span.kind is SpanKind.CLIENT
    usage = answer.json()["usage"]
    told = dict(span.attributes or {})
    assert told.pop("gen_ai.conversation.id") == usage["kakeya"]["session"]["id"]
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "kakeya",
        "gen_ai.request.model": "counter",
        "gen_ai.response.model": "counter",
        "gen_ai.response.id": answer.json()["id"],
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 1.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.seed": 7,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
    }


async def test_the_latest_names_stand_in_the_place_of_the_older(
    traced: Shim, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OPT_IN, "http, gen_ai_latest_experimental")
    traced.will_say("Hi")
    await traced.events()
    told = dict((await spans.told("chat counter")).attributes or {})
    assert "gen_ai.system" not in told
    assert told["gen_ai.provider.name"] == "kakeya"
    assert told["gen_ai.request.stream"] is True
    assert told["gen_ai.usage.cache_read.input_tokens"] == 0


async def test_prompts_of_several_answers_count_once(traced: Shim, spans: Spans) -> None:
    traced.will_say("One", "Two", "Three", "Four")
    answer = await traced.complete(prompt=["a", "bc"], n=2)
    told = dict((await spans.told("text_completion counter")).attributes or {})
    usage = answer.json()["usage"]
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert told["gen_ai.request.choice.count"] == 4
    assert told["gen_ai.response.finish_reasons"] == ("stop",) * 4


async def test_a_failure_says_its_reason_and_not_its_message(traced: Shim, spans: Spans) -> None:
    traced.runtime.before["Turn"].append(fails("NO_CAPACITY", says="secret"))
    assert (await traced.http.post(COMPLETIONS, json={"model": "counter", "prompt": "a"})).status_code == 429
    span = await spans.told("text_completion counter")
    assert dict(span.attributes or {})["error.type"] == "NO_CAPACITY"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)


async def test_without_a_request_that_is_traced_nothing_is_recorded(
    shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans = ExportedSpans(monkeypatch, inference_span)
    shim.will_say("Hi")
    assert (await shim.chat()).status_code == 200
    assert spans.names == []


@pytest.mark.parametrize(
    ("opted_in", "names"),
    [
        ({}, {""}),
        ({OPT_IN: "http"}, {""}),
        ({OPT_IN: "gen_ai_latest_experimental"}, {"gen_ai_latest_experimental"}),
        ({OPT_IN: "http,gen_ai_latest_experimental/dup"}, {"gen_ai_latest_experimental", ""}),
    ],
)
def test_which_names_are_told(opted_in: dict[str, str], names: set[str]) -> None:
    assert inference_span.names_told(opted_in) == names
