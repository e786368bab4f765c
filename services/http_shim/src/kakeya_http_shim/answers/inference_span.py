"""The span that tools for language models look for: which model was asked, how, and how many tokens it took.

By OpenTelemetry's conventions for generative AI, whose names still change. As these demand, the names of version 1.36
are told unless OTEL_SEMCONV_STABILITY_OPT_IN lists `gen_ai_latest_experimental`; with `gen_ai_latest_experimental/dup`
both are. What was said is never told.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from kakeya import KakeyaError
from kakeya_http_shim.answers.question import Question
from kakeya_http_shim.choices.choice import Ended, Event
from kakeya_http_shim.choices.opened import Opened

_OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
_LATEST = "gen_ai_latest_experimental"
_NAME = "kakeya"
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "seed")

_tracer = trace.get_tracer("kakeya")


class InferenceSpan:
    """Hears the events of a question's answers, and tells at their end what they took."""

    def __init__(self, span: Span, question: Question, names: frozenset[str]) -> None:
        self._span = span
        self._names = names
        prompts = {id(ask.prompt): index for index, ask in reversed(list(enumerate(question.asks)))}
        self._of_prompts = frozenset(prompts.values())  # the first answer of each prompt
        self._ended: dict[int, Ended] = {}

    def hears(self, index: int, event: Event) -> None:
        """An event of the answer of that index."""
        if not self._span.is_recording():
            return
        if isinstance(event, Opened) and event.said is not None and event.said.session_id and index == 0:
            self._span.set_attribute("gen_ai.conversation.id", event.said.session_id)
        if isinstance(event, Ended):
            self._ended[index] = event
            self._span.set_attributes(self._told())

    def _told(self) -> dict[str, AttributeValue]:
        """Of the answers that have ended."""
        of_prompts = [ended.spent for index, ended in self._ended.items() if index in self._of_prompts]
        told: dict[str, AttributeValue] = {
            "gen_ai.response.finish_reasons": [self._ended[index].finish_reason for index in sorted(self._ended)],
            "gen_ai.usage.input_tokens": sum(spent.num_prompt_tokens for spent in of_prompts),
            "gen_ai.usage.output_tokens": sum(ended.spent.num_tokens for ended in self._ended.values()),
        }
        if _LATEST in self._names:
            told["gen_ai.usage.cache_read.input_tokens"] = sum(each.said.num_reused for each in of_prompts if each.said)
        return told


@contextmanager
def inference_span(question: Question, environment: Mapping[str, str] = os.environ) -> Iterator[InferenceSpan]:
    """Current inside, child of the request's; nothing is recorded where that is not."""
    names = names_told(environment)
    if not trace.get_current_span().is_recording():
        yield InferenceSpan(INVALID_SPAN, question, names)
        return
    model = question.asks[0].model.served.name
    with _tracer.start_as_current_span(
        f"{question.operation} {model}",
        kind=SpanKind.CLIENT,
        attributes=_asked(question, names),
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield InferenceSpan(span, question, names)
        except BaseException as error:
            kind = error.reason if isinstance(error, KakeyaError) else type(error).__name__
            span.set_attribute("error.type", kind)
            span.set_status(Status(StatusCode.ERROR))
            raise


def names_told(environment: Mapping[str, str]) -> frozenset[str]:
    """Which names are told: `_LATEST`, and "" for the older ones."""
    listed = {each.strip() for each in environment.get(_OPT_IN, "").split(",")}
    if f"{_LATEST}/dup" in listed:
        return frozenset({_LATEST, ""})
    return frozenset({_LATEST} if _LATEST in listed else {""})


def _asked(question: Question, names: frozenset[str]) -> dict[str, AttributeValue]:
    ask = question.asks[0]
    told: dict[str, AttributeValue] = {
        "gen_ai.operation.name": question.operation,
        "gen_ai.request.model": ask.model.name,
        "gen_ai.response.model": ask.model.served.name,
        "gen_ai.response.id": question.id,
    }
    told |= {f"gen_ai.request.{name}": value for name in _SAMPLING if (value := ask.sampling.get(name)) is not None}
    if len(question.asks) > 1:
        told["gen_ai.request.choice.count"] = len(question.asks)
    if "" in names:
        told["gen_ai.system"] = _NAME
    if _LATEST in names:
        told |= {"gen_ai.provider.name": _NAME, "gen_ai.request.stream": question.streams}
    return told
