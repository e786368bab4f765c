"""Writes answers as Ollama's API has them."""

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from kakeya_http_shim.answers.usage import usage
from kakeya_http_shim.answers.writer import Heading, Whole
from kakeya_http_shim.choices.choice import Ended
from kakeya_http_shim.choices.opened import Opened, Spent
from kakeya_http_shim.ollama_api.answer_lines import (
    ChatLine,
    DoneReason,
    GenerateLine,
    OllamaAnswerMessage,
    OllamaCalledFunction,
    OllamaCalledTool,
    OllamaLogprob,
    OllamaToken,
)
from kakeya_http_shim.ollama_api.ollama_requests import OllamaChatRequest, OllamaFields
from kakeya_http_shim.text.delta import Delta, Likelihood
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content, Unfinished, joined
from kakeya_http_shim.tools.deltas import Delta as Part

_LOADED: DoneReason = "load"


class OllamaWriter:
    """Writes the one answer of a request.

    Args:
        given: the request, which has just come.
    """

    id_prefix = "ollama-"

    def __init__(self, given: OllamaFields) -> None:
        self._model = given.model
        self._is_chat = isinstance(given, OllamaChatRequest)
        self._has_logprobs = bool(given.logprobs)
        self._began_at = time.monotonic_ns()

    @property
    def sign_of_life(self) -> bytes:
        """A piece that says nothing: clients read each line as one."""
        return self._line(_message(""), done=False)

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        return b""

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        likelihoods = self._logprobs(delta.likelihoods)
        lines = []
        for message in _messages(delta):
            lines.append(self._line(message, done=False, **likelihoods))
            likelihoods = {}
        return lines

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        return self._line(_message(""), **self._figures(ended))

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return b""  # told where the answer ends

    def done(self) -> bytes:
        return b""  # it is

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        (answer,) = answers
        said = joined(answer.delta.parts)
        calls = [_called(index, call.id, call.name, call.arguments) for index, call in enumerate(said.calls)]
        message = _message(
            said.content, thinking=answer.delta.reasoning, tool_calls=calls, unfinished_call=said.unfinished
        )
        likelihoods = self._logprobs(answer.delta.likelihoods)
        return self._line(message, **self._figures(answer.ended), **likelihoods).rstrip()

    def loaded(self) -> bytes:
        """The answer to a request that asks for nothing."""
        message = _message("")
        return self._line(message, done=True, done_reason=_LOADED).rstrip()

    def _line(self, message: OllamaAnswerMessage, **more: Any) -> bytes:
        more |= {"model": self._model, "created_at": datetime.now(UTC).isoformat().replace("+00:00", "Z")}
        line: ChatLine | GenerateLine
        if self._is_chat:
            line = ChatLine(message=message, **more)
        else:
            more |= {"thinking": message.thinking} if message.thinking else {}
            line = GenerateLine(response=message.content, **more)
        return line.model_dump_json(exclude_unset=True).encode() + b"\n"

    def _figures(self, ended: Ended) -> dict[str, Any]:
        """What the last line has."""
        total = time.monotonic_ns() - self._began_at
        prompt, answer = (
            round(seconds * 1e9) for seconds in (ended.seconds.to_first_token, ended.seconds.from_then_on)
        )
        counted = usage([ended.spent], [ended.spent])
        return {
            "done": True,
            "done_reason": "length" if ended.finish_reason == "length" else "stop",
            "total_duration": total,
            "load_duration": max(0, total - prompt - answer),
            "prompt_eval_count": counted.prompt_tokens,
            "prompt_eval_duration": prompt,
            "eval_count": counted.completion_tokens,
            "eval_duration": answer,
            "kakeya": counted.kakeya,
        }

    def _logprobs(self, likelihoods: Sequence[Likelihood]) -> dict[str, list[OllamaLogprob]]:
        if not self._has_logprobs or not likelihoods:
            return {}
        return {"logprobs": [_logprob(each) for each in likelihoods]}


def _messages(delta: Delta) -> Iterator[OllamaAnswerMessage]:
    """What the lines of a piece say, one part each; thoughts with the content that follows them."""
    text, parts = "", [*delta.parts]
    match parts:
        case [Content(first), *rest]:
            text, parts = first, rest
    if text or delta.reasoning or not parts:
        yield _message(text, thinking=delta.reasoning)
    yield from _told(parts)


def _told(parts: Sequence[Part]) -> Iterator[OllamaAnswerMessage]:
    for place, part in enumerate(parts):
        match part:
            case Content(text):
                yield _message(text)
            case CallBegun(index, id_, name):
                yield _message("", tool_calls=[_called(index, id_, name, _arguments(parts[place + 1 :], index))])
            case Unfinished(text):
                yield _message("", unfinished_call=text)


def _arguments(parts: Sequence[Part], index: int) -> str:
    """Of a call: they come with it in one piece, since it is told once it is whole."""
    return "".join(part.text for part in parts if isinstance(part, ArgumentText) and part.index == index)


def _message(content: str, **more: Any) -> OllamaAnswerMessage:
    given = {name: value for name, value in more.items() if value}
    return OllamaAnswerMessage(role="assistant", content=content, **given)


def _called(index: int, id_: str, name: str, arguments: str) -> OllamaCalledTool:
    """JSON may spell halves of characters, which no answer in UTF-8 can hold: these are replaced."""
    value = json.loads(json.dumps(json.loads(arguments), ensure_ascii=False).encode(errors="replace"))
    return OllamaCalledTool(id=id_, function=OllamaCalledFunction(index=index, name=name, arguments=value))


def _logprob(likelihood: Likelihood) -> OllamaLogprob:
    top = [OllamaToken(token=text, logprob=logprob, bytes=list(data)) for text, data, logprob in likelihood.likeliest]
    more = {"top_logprobs": top} if top else {}
    return OllamaLogprob(token=likelihood.text, logprob=likelihood.logprob, bytes=list(likelihood.data), **more)
