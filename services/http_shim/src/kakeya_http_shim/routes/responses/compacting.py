"""Makes conversations small: what is forgotten anyway need not be sent."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kakeya import AsyncClient, FoundSession, KakeyaError, ServedModel
from kakeya_http_shim.conversations.chat import Conversation
from kakeya_http_shim.conversations.tags import Candidate
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.problems import ApiError, from_kakeya
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.compacted_message import Compacted, CompactedMessage
from kakeya_http_shim.requests.messages import Message, SystemMessage, UserMessage
from kakeya_http_shim.responses_api.compact_request import Forgotten
from kakeya_http_shim.responses_api.compaction import Compaction
from kakeya_http_shim.routes import prompts

_NEXT: Final = UserMessage.model_validate({"role": "user", "content": "?"})
"""Behind an answer: what is before it is what the template writes of the answer."""


@dataclass(frozen=True)
class Made:
    """A compaction, and what it has forgotten."""

    compaction: Compaction
    forgotten: Forgotten


@dataclass(frozen=True)
class Compacting:
    """Of one conversation.

    Attributes:
        body: as the chat that it is.
        num_instructions: messages at its beginning that the next request sends again.
        max_tokens: that a prompt may have.
    """

    body: ChatRequest
    model: TextModel
    conversation: Conversation
    num_instructions: int
    max_tokens: int
    client: AsyncClient

    async def made(self) -> Made:
        """Raises ApiError."""
        answer = self.conversation.last_answer
        if answer is None:
            num_tokens = await self._num_tokens()
            forgotten = Forgotten(history=num_tokens, retained=num_tokens, evicted=0, session=None)
            return Made(self._compaction(None, self._num_head), forgotten)
        history, found = await self._up_to(answer), await self._found(answer)
        history_length = found.place if found else history.length
        retained = history.retained(self.model.served)
        link = self.conversation.chain[answer]
        compacted = Compacted(
            self.model.tokenizer.digest, self.conversation.root, link, tuple(retained), history_length
        )
        num_retained = min(history.num_pinned + len(retained), history_length)
        forgotten = Forgotten(
            history=history_length,
            retained=num_retained,
            evicted=history_length - num_retained,
            session=found.id if found else None,
        )
        return Made(self._compaction(compacted, answer), forgotten)

    async def is_longer_than(self, num_tokens: int | None) -> bool:
        """Whether so many, or (None) those that a session keeps, are fewer than it has. Raises ApiError."""
        return await self._num_tokens() > (num_tokens or self.model.served.num_lane_tokens)

    async def _num_tokens(self) -> int:
        return len((await self._written([*self.conversation.messages])).token_ids)

    @property
    def _num_head(self) -> int:
        messages = self.conversation.messages
        others = (index for index, each in enumerate(messages) if not isinstance(each, SystemMessage))
        return next(others, len(messages))

    def _compaction(self, compacted: Compacted | None, begin: int) -> Compaction:
        messages = self.conversation.messages
        head = messages[self.num_instructions : self._num_head]
        return Compaction(head, compacted, messages[begin:])

    async def _written(self, messages: list[Message]) -> Prompt:
        body = self.body.model_copy(update={"messages": messages})
        write = partial(prompts.whole_chat, body, self.model, max_tokens=self.max_tokens)
        return await prompts.without_waiting(write, is_short=False)

    async def _up_to(self, answer: int) -> "_History":
        """What the template writes up to the end of an answer. Raises ApiError: it writes the past anew."""
        messages = [*self.conversation.messages]
        if answer == len(messages) - 1:
            messages.append(_NEXT)
        whole = await self._written(messages)
        conversation = replace(self.conversation, messages=messages)
        behind = await prompts.without_waiting(
            partial(
                prompts.behind, conversation, Candidate(b"", "end", answer, closed=True), max_tokens=self.max_tokens
            ),
            is_short=False,
        )
        num_tokens = len(whole.token_ids) - (len(behind.token_ids) if behind else 0)
        if behind is None or whole.token_ids[num_tokens:] != behind.token_ids:
            raise not_compactable("writes the past anew")
        compacted = next((each.compacted for each in messages if isinstance(each, CompactedMessage)), None)
        num_gone = compacted.history_length - whole.num_pinned - len(compacted.token_ids) if compacted else 0
        return _History(whole.token_ids[:num_tokens], whole.num_pinned, max(0, num_gone))

    async def _found(self, answer: int) -> FoundSession | None:
        places = [each for each in self.conversation.candidates if each.kind == "end" and each.index == answer]
        try:
            return await self.client.find_session([each.tag for each in places], model=self.model.served.name)
        except KakeyaError as error:
            raise from_kakeya(error) from error


def not_compactable(what: str) -> ApiError:
    """A chat template does that."""
    message = f"the chat template of this model {what}, so that what was compacted could not be gone on from"
    return ApiError(400, message, param="model", code="not_compactable")


@dataclass(frozen=True, slots=True)
class _History:
    """Tokens up to the end of an answer.

    Attributes:
        num_pinned: of the head.
        num_gone: that were behind the head, and that an earlier compaction has forgotten.
    """

    token_ids: list[int]
    num_pinned: int
    num_gone: int

    @property
    def length(self) -> int:
        return len(self.token_ids) + self.num_gone

    def retained(self, served: ServedModel) -> list[int]:
        """Those that a session sees at its end, without those of the head, which is written anew."""
        num_sink = min(max(self.num_pinned, served.sink), len(self.token_ids))
        begin = max(num_sink, len(self.token_ids) - (served.num_lane_tokens - num_sink))
        return [*self.token_ids[self.num_pinned : num_sink], *self.token_ids[begin:]]
