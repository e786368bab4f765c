"""Writes answers as Anthropic's API has them."""

from collections.abc import Sequence
from typing import Any

from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.answers.usage import usage
from kakeya_http_shim.answers.writer import Heading, Whole
from kakeya_http_shim.choices.choice import Ended
from kakeya_http_shim.choices.opened import Opened, Spent
from kakeya_http_shim.messages_api.answer_blocks import StreamedBlocks, blocks
from kakeya_http_shim.messages_api.answer_events import (
    AnswerEnd,
    AppliedEdits,
    MessageAnswer,
    MessageStart,
    MessageStop,
    MessagesUsage,
    Ping,
    Stopped,
    StopReason,
    StreamEvent,
)
from kakeya_http_shim.messages_api.messages_request import MessagesRequest
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.tools.deltas import joined


def _written(event: StreamEvent) -> bytes:
    return framed(event.model_dump_json(exclude_unset=True).encode(), event.type)


class MessagesWriter:
    """Writes the one answer of a request.

    Args:
        given: the request.
    """

    id_prefix = "msg_"
    sign_of_life = _written(Ping(type="ping"))

    def __init__(self, given: MessagesRequest) -> None:
        self._hides_thoughts = given.hides_thoughts
        self._blocks = StreamedBlocks(hides_thoughts=given.hides_thoughts)
        self._edits: dict[str, Any] = {}
        if given.context_management is not None:
            self._edits["context_management"] = AppliedEdits(applied_edits=[])

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        message = self._message(heading, Delta(), opened.spent(0), stop_reason=None, stop_sequence=None)
        return _written(MessageStart(type="message_start", message=message))

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        return [_written(event) for event in self._blocks.push(delta)]

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        stopped = Stopped(**_stops(ended))
        more = self._edits | _unfinished(self._blocks.unfinished)
        last = AnswerEnd(type="message_delta", delta=stopped, usage=_usage(ended.spent), **more)
        return b"".join(map(_written, [*self._blocks.close(), last]))

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return b""  # told where the answer ends

    def done(self) -> bytes:
        return _written(MessageStop(type="message_stop"))

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        (answer,) = answers
        more = self._edits | _unfinished(joined(answer.delta.parts).unfinished)
        message = self._message(heading, answer.delta, answer.ended.spent, **_stops(answer.ended), **more)
        return message.model_dump_json(exclude_unset=True).encode()

    def _message(self, heading: Heading, said: Delta, spent: Spent, **more: Any) -> MessageAnswer:
        return MessageAnswer(
            id=heading.id,
            type="message",
            role="assistant",
            model=heading.model,
            content=blocks(said, hides_thoughts=self._hides_thoughts),
            usage=_usage(spent),
            **more,
        )


def _unfinished(call: str) -> dict[str, str]:
    return {"unfinished_call": call} if call else {}


def _stops(ended: Ended) -> dict[str, Any]:
    reason = _stop_reason(ended)
    return {"stop_reason": reason, "stop_sequence": ended.stop_text if reason == "stop_sequence" else None}


def _stop_reason(ended: Ended) -> StopReason:
    if ended.finish_reason == "tool_calls":  # however it ended: the client is to run them
        return "tool_use"
    if ended.stop_text is not None:
        return "stop_sequence"
    if ended.is_full:
        return "model_context_window_exceeded"
    return "max_tokens" if ended.finish_reason == "length" else "end_turn"


def _usage(spent: Spent) -> MessagesUsage:
    counted = usage([spent], [spent])
    num_reused = counted.prompt_tokens_details.cached_tokens
    return MessagesUsage(
        input_tokens=counted.prompt_tokens - num_reused,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=num_reused,
        output_tokens=counted.completion_tokens,
        kakeya=counted.kakeya,
    )
