"""Writes answers as the API of Responses has them."""

import itertools
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

from kakeya_http_shim import error_shapes
from kakeya_http_shim.answers.stream_events import framed
from kakeya_http_shim.answers.usage import usage
from kakeya_http_shim.answers.writer import Heading, OpenAiStream, Whole
from kakeya_http_shim.choices.choice import Ended, Opened, Spent
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
    OutputTokensDetails,
    ResponseError,
    ResponseObject,
    ResponseUsage,
    Status,
)
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.responses_api.responses_tools import namespaces
from kakeya_http_shim.text.delta import Delta

ID_PREFIX: Final = "resp_"


def _written(event: StreamEvent) -> bytes:
    return framed(event.model_dump_json(exclude_unset=True).encode(), event.type)


class ResponsesWriter(OpenAiStream):
    """Writes the one answer of a request.

    Args:
        given: the request.
        on_overflow: the server's, where the request says nothing of it.
        stores: whether the server stores any.

    Attributes:
        response: as its client has been told of it, or will be next.
    """

    id_prefix = ID_PREFIX

    def __init__(self, given: ResponsesRequest, on_overflow: Literal["evict", "refuse"], *, stores: bool) -> None:
        self._asked = asked_for(given, on_overflow, stores=stores)
        self._numbers = itertools.count()
        self._heading = Heading("", 0, "", "")
        self._namespaces = namespaces(given.tools or ())
        self._items = AnswerItems("", self._numbers, self._namespaces)
        self._end: list[StreamEvent] = []
        self.response = self._response("in_progress")

    def begin(self, heading: Heading, opened: Opened) -> bytes:
        self._headed(heading)
        self.response = self._response("in_progress")
        created = ResponseCreated(
            type="response.created",
            sequence_number=next(self._numbers),
            response=self.response,
        )
        making = ResponseInProgress(
            type="response.in_progress", sequence_number=next(self._numbers), response=self.response
        )
        return _written(created) + _written(making)

    def pieces(
        self, heading: Heading, index: int, delta: Delta, *, is_first: bool, spent: Spent | None = None
    ) -> Sequence[bytes]:
        return [_written(event) for event in self._items.push(delta)]

    def end(self, heading: Heading, index: int, ended: Ended, *, is_first: bool, spent: Spent | None = None) -> bytes:
        told = [*self._items.end(_item_status(ended))]
        self.response, number = self._ended(ended), next(self._numbers)
        last: StreamEvent
        if ended.finish_reason == "length":
            last = ResponseIncomplete(type="response.incomplete", sequence_number=number, response=self.response)
        else:
            last = ResponseCompleted(type="response.completed", sequence_number=number, response=self.response)
        self._end = [*told, last]
        return b"".join(map(_written, self._end))

    def usage(self, heading: Heading, answers: Sequence[Spent]) -> bytes:
        return b""  # told where the answer ends

    def whole(self, heading: Heading, answers: Sequence[Whole]) -> bytes:
        (answer,) = answers
        self._headed(heading)
        _ = [*self._items.push(answer.delta), *self._items.end(_item_status(answer.ended))]
        self.response = self._ended(answer.ended)
        return self.response.model_dump_json(exclude_unset=True).encode()

    def unstored(self) -> bytes:
        """What was said last, of a response that could not be stored."""
        self.response = self.response.model_copy(update={"store": False})
        if not self._end:
            return self.response.model_dump_json(exclude_unset=True).encode()
        *told, last = self._end
        return b"".join(map(_written, [*told, last.model_copy(update={"response": self.response})]))

    def unsay_end(self) -> None:
        """Its end will not be told: something has failed before that."""
        if self._end:
            self._numbers = itertools.count(self._end[0].sequence_number)

    def response_json(self) -> dict[str, Any]:
        """As it is now."""
        return self.response.model_dump(mode="json", exclude_unset=True)

    def give_up(self, error: ApiError | None) -> None:
        """It has failed, or (None) nobody wants its end."""
        if error is None:
            self.response = self._response("cancelled")
        else:
            said = ResponseError(code=error.code or error.type, message=error.message)
            self.response = self._response("failed", error=said)

    def failure(self, error: ApiError) -> bytes:
        """The last events of a stream that has begun and fails."""
        error = error_shapes.as_responses(error)
        self.give_up(error)
        body = error.body()["error"]
        told = StreamError(
            type="error",
            sequence_number=next(self._numbers),
            code=error.code,
            message=error.message,
            param=error.param,
            error=StreamErrorBody(**body),
        )
        failed = ResponseFailed(type="response.failed", sequence_number=next(self._numbers), response=self.response)
        return _written(told) + _written(failed)

    def _headed(self, heading: Heading) -> None:
        self._heading = heading
        self._items = AnswerItems(heading.id.removeprefix(ID_PREFIX), self._numbers, self._namespaces)

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
