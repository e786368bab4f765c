"""Writes answers as the API of Responses has them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Self

from kakeya_http_shim import error_shapes
from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.answers.usage import usage
from kakeya_http_shim.answers.writer import Heading, OpenAiStream, Whole
from kakeya_http_shim.choices.choice import Ended
from kakeya_http_shim.choices.opened import Opened, Spent
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.responses_api.answer_items import AnswerItems
from kakeya_http_shim.responses_api.asked_for import asked_for
from kakeya_http_shim.responses_api.response_events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    StreamError,
    StreamErrorBody,
    StreamEvent,
)
from kakeya_http_shim.responses_api.response_object import (
    IncompleteDetails,
    InputTokensDetails,
    OutputCompaction,
    OutputTokensDetails,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    Status,
)
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_tools import namespaces
from kakeya_http_shim.responses_api.told_stream import Numbers, Told
from kakeya_http_shim.text.delta import Delta

ID_PREFIX: Final = "resp_"

_OF_ANSWER: Final = {
    *("id", "object", "created_at", "completed_at", "status", "model", "output", "usage"),
    *("incomplete_details", "error", "unfinished_call"),
}
"""Of a response, what does not depend on its request alone."""


def written(event: StreamEvent) -> bytes:
    """As it is on the wire."""
    return framed(event.model_dump_json(exclude_unset=True).encode(), event.type)


def cancelled() -> ApiError:
    """Why a stream ends whose response was cancelled."""
    return ApiError(409, "the response was cancelled", code="cancelled")


class ResponsesWriter(OpenAiStream):
    """Writes the one answer of a request.

    Args:
        given: the request.
        asked: what of it the answer says again.

    Attributes:
        response: as its client has been told of it, or will be next.
    """

    id_prefix = ID_PREFIX

    def __init__(self, given: ResponsesRequest, asked: Mapping[str, Any]) -> None:
        self._asked = asked
        self._numbers = Numbers()
        self._heading = Heading("", 0, "", "")
        self._namespaces = namespaces(given.tools or ())
        self._error: ApiError | None = None
        self._seal: Callable[[str], str] | None = None
        self._compaction: OutputCompaction | None = None
        self._items = AnswerItems("", self._numbers, self._namespaces)
        self._end: list[StreamEvent] = []
        self.response = self._response("in_progress")

    @classmethod
    def of(cls, given: ResponsesRequest, on_overflow: Literal["evict", "refuse"], *, stores: bool) -> Self:
        """One of a request.

        Args:
            on_overflow: the server's, where the request says nothing of it.
            stores: whether the server stores any.
        """
        return cls(given, asked_for(given, on_overflow, stores=stores))

    @classmethod
    def going_on(cls, given: ResponsesRequest, response: Mapping[str, Any]) -> Self:
        """One of a response that another server has begun."""
        writer = cls(given, {name: value for name, value in response.items() if name not in _OF_ANSWER})
        for item in response["output"]:
            writer.begins_with(OutputCompaction.model_validate(item))
        return writer

    def seal_thoughts(self, seal: Callable[[str], str]) -> None:
        """They come encrypted, too."""
        self._seal = seal

    def begins_with(self, item: OutputCompaction) -> None:
        """All that was said before the answer, which begins with that item."""
        self._compaction = item

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        self._headed(heading)
        self.response = self._response("in_progress")
        told = [*begun(self.response, self._numbers), *self._compacted()]
        self.response = self._response("in_progress")  # which another server goes on from
        return b"".join(map(written, told))

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        return [written(event) for event in self._items.push(delta)]

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        told = [*self._items.end(_item_status(ended))]
        self.response = self._ended(ended)
        self._end = [*told, last_event(self.response, next(self._numbers))]
        return b"".join(map(written, self._end))

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return b""  # told where the answer ends

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        (answer,) = answers
        self._headed(heading)
        _ = [*self._compacted(), *self._items.push(answer.delta), *self._items.end(_item_status(answer.ended))]
        self.response = self._ended(answer.ended)
        return self.response.model_dump_json(exclude_unset=True).encode()

    def unstored(self) -> bytes:
        """What was said last, of a response that could not be stored."""
        self.response = self.response.model_copy(update={"store": False})
        if not self._end:
            return self.response.model_dump_json(exclude_unset=True).encode()
        *told, last = self._end
        return b"".join(map(written, [*told, last.model_copy(update={"response": self.response})]))

    def unsay_end(self) -> None:
        """Its end will not be told: something has failed before that."""
        if self._end:
            self._numbers.next = self._end[0].sequence_number

    def response_json(self) -> dict[str, Any]:
        """As it is now."""
        return self.response.model_dump(mode="json", exclude_unset=True)

    def told(self) -> Told:
        """How its stream was told so far, and how it ends where it was given up."""
        item, pieces = self._items.open_item or (None, None)
        return Told(
            [*self._items.pieces, *([pieces] if pieces is not None else [])],
            None if item is None else item.model_dump(mode="json", exclude_unset=True),
            None if self._error is None else error_shapes.as_responses(self._error).body()["error"],
            None if self._error is None else self._numbers.next,
        )

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) nobody wants its end."""
        self._error = error or cancelled()
        if error is None:
            self.response = self._response("cancelled")
        else:
            said = ResponseError(code=error.code or error.type, message=error.message)
            self.response = self._response("failed", error=said)

    def failure(self, error: ApiError) -> bytes:
        """The last events of a stream that has begun and fails."""
        error = error_shapes.as_responses(error)
        self.give_up(error)
        return b"".join(map(written, failed(self.response, error.body()["error"], self._numbers)))

    def _headed(self, heading: Heading) -> None:
        self._heading = heading
        self._items = AnswerItems(heading.id.removeprefix(ID_PREFIX), self._numbers, self._namespaces, self._seal)

    def _compacted(self) -> Iterator[StreamEvent]:
        if self._compaction is not None:
            yield from self._items.compaction(self._compaction)

    def _ended(self, ended: Ended) -> ResponseObject:
        if ended.finish_reason == "length":
            reason: Any = "model_context_window_exceeded" if ended.is_full else "max_output_tokens"
            details = IncompleteDetails(reason=reason)
            return self._response("incomplete", usage=_usage(ended.spent), incomplete_details=details)
        return self._response("completed", usage=_usage(ended.spent), completed_at=int(time.time()))

    def _response(self, status: Status, **more: Any) -> ResponseObject:
        heading = self._heading
        if self._items.unfinished:
            more["unfinished_call"] = self._items.unfinished
        unsaid: dict[str, Any] = {"completed_at": None, "incomplete_details": None, "error": None, "usage": None}
        return ResponseObject(
            id=heading.id,
            object="response",
            created_at=heading.created,
            status=status,
            model=heading.model,
            output=[*self._items.items],
            **self._asked,
            **unsaid | more,
        )


def begun(response: ResponseObject, numbers: Iterator[int]) -> list[StreamEvent]:
    """The first events of a stream."""
    return [
        ResponseCreated(type="response.created", sequence_number=next(numbers), response=response),
        ResponseInProgress(type="response.in_progress", sequence_number=next(numbers), response=response),
    ]


def last_event(response: ResponseObject, number: int) -> StreamEvent:
    """The last event of the stream of an answer that has come to its end, or was cut."""
    if response.status == "incomplete":
        return ResponseIncomplete(type="response.incomplete", sequence_number=number, response=response)
    return ResponseCompleted(type="response.completed", sequence_number=number, response=response)


def failed(response: ResponseObject, error: Mapping[str, Any], numbers: Iterator[int]) -> list[StreamEvent]:
    """The last events of a stream that fails."""
    body = StreamErrorBody.model_validate(error)
    told = StreamError(
        type="error",
        sequence_number=next(numbers),
        code=body.code,
        message=body.message,
        param=body.param,
        error=body,
    )
    return [
        told,
        ResponseFailed(type="response.failed", sequence_number=next(numbers), response=response),
    ]


def _item_status(ended: Ended) -> Literal["completed", "incomplete"]:
    return "incomplete" if ended.finish_reason == "length" else "completed"


def _usage(spent: Spent) -> ResponseUsage:
    counted = usage([spent], [spent])
    return ResponseUsage(
        input_tokens=counted.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=counted.prompt_tokens_details.cached_tokens),
        output_tokens=counted.completion_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=spent.num_reasoning_tokens),
        total_tokens=counted.total_tokens,
        kakeya=counted.kakeya,
    )
