"""What was said before a request, or before the items of a response: as the runtime keeps it."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from kakeya import AsyncClient
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.responses_api.kept.kept_response import Behind, Conversation, KeptResponse
from kakeya_http_shim.responses_api.kept.packing import Unreadable
from kakeya_http_shim.responses_api.responses_request import ResponsesRequest
from kakeya_http_shim.routes import bodies
from kakeya_http_shim.routes.responses.conversation_store import Conversations
from kakeya_http_shim.routes.responses.keeping import Joined
from kakeya_http_shim.routes.responses.looking import Looking
from kakeya_http_shim.routes.responses.stored_response import NOT_FOUND

PREVIOUS: Final = "previous_response_id"
CONVERSATION: Final = "conversation"
PREVIOUS_NOT_FOUND: Final = "previous_response_not_found"
_TO_GO_ON_FROM: Final = ("completed", "incomplete")
_MAX_SHORT_ITEMS: Final = 8
"""Of an answer: more of them are checked off the event loop."""


@dataclass(frozen=True)
class Before:
    """What a request goes on from.

    Attributes:
        after: the response at whose end that is, if it is one's.
        joined: the conversation that it is in, if it is in one.
    """

    said: Conversation = field(default_factory=Conversation)
    after: str | None = None
    joined: Joined | None = None


@dataclass(frozen=True)
class Past:
    """What a key's tenant has said. All methods but `known` and `is_so` raise ApiError.

    Attributes:
        client: of the key.
    """

    client: AsyncClient
    looking: Looking

    async def before(self, given: ResponsesRequest) -> Before:
        """What a request goes on from."""
        if given.conversation_id is not None:
            return await self._joined(given.conversation_id)
        if given.previous_response_id is None:
            return Before()
        return Before(await self._up_to(given.previous_response_id), given.previous_response_id)

    def known(self, response_id: str) -> Before | None:
        """The end of a response as this server has stored it, if it knows that; see `is_so`."""
        said = self.looking.latest.up_to(response_id)
        return None if said is None else Before(said, response_id)

    async def is_so(self, response_id: str, known: Before) -> bool:
        """Whether that is what was said up to the end of a response, as far as the runtime says anything."""
        try:
            kept = await self.looking.look(self.client, response_id)
        except ApiError:
            return False
        if kept.status not in _TO_GO_ON_FROM or kept.behind is not None:
            return False
        return kept.items.followed_by(kept.response["output"]).is_like(known.said.kept)

    async def before_items(self, kept: KeptResponse) -> Conversation:
        """What was said before the items that are kept of a response."""
        if kept.after is not None:
            return await self._up_to(kept.after)
        if kept.behind is None or kept.behind.item_id is None:
            return Conversation()
        try:
            conversation = await self._conversations.fetch(kept.behind.conversation_id)
            return await asyncio.to_thread(conversation.said, kept.behind.item_id)
        except Unreadable as error:
            raise _unusable("is in a conversation that has been changed since") from error
        except ApiError as error:
            if error.status != 404:
                raise
            raise _unusable("is in a conversation that is not there any more") from error

    async def _up_to(self, response_id: str) -> Conversation:
        """All that was said up to the end of a response."""
        try:
            kept = await self.looking.look(self.client, response_id)
            if kept.status not in _TO_GO_ON_FROM:
                raise _unusable(f"is {kept.status}, and has no end to go on from")
            is_short = len(kept.response["output"]) <= _MAX_SHORT_ITEMS
            said = await bodies.made(kept.conversation, is_short=is_short)
        except Unreadable as error:
            raise _unusable("was stored by another version of this server") from error
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            raise _unusable("is not there: never stored, deleted or expired", PREVIOUS_NOT_FOUND) from error
        return (await self.before_items(kept)).followed_by(said)

    async def _joined(self, conversation_id: str) -> Before:
        """All that is in a conversation."""
        conversations = self._conversations
        kept = await conversations.fetch(conversation_id)
        try:
            said = await asyncio.to_thread(kept.said)
        except Unreadable as error:
            message = f"{CONVERSATION}: it was stored by another version of this server"
            raise ApiError(400, message, param=CONVERSATION, code="invalid_value") from error
        last = kept.items[-1]["id"] if kept.items else None
        return Before(said, joined=Joined(conversations, Behind(conversation_id, last)))

    @property
    def _conversations(self) -> Conversations:
        return Conversations(self.client, self.looking.ttl_seconds, CONVERSATION)


def _unusable(why: str, code: str = "invalid_value") -> ApiError:
    return ApiError(400, f"{PREVIOUS}: the response {why}", param=PREVIOUS, code=code)
