"""Finds the session in which a chat request goes on, by the tags of its places."""

from dataclasses import dataclass, replace

import grpc

from kakeya import AsyncClient, FoundSession, RpcFailed, SessionNotFound
from kakeya_http_shim.conversations.chat import Chat, Conversation
from kakeya_http_shim.conversations.heads import Heads, behind_head
from kakeya_http_shim.conversations.said import SESSION_ID_HEADER, Why
from kakeya_http_shim.conversations.tags import Candidate
from kakeya_http_shim.conversations.way import Search, Way
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests.compacted_message import CompactedMessage
from kakeya_shared.contract.features import TURN_SEARCH


@dataclass(frozen=True)
class Finding:
    """Says where a chat goes on. Nothing is kept between requests: the runtime knows the tags.

    Attributes:
        heads: the sessions that conversations with equal heads begin from.
    """

    heads: Heads

    async def likely(self, chat: Chat) -> Way | None:
        """Where it goes on if its client has done what most do, for its turn to look there; None: find it first.

        Raises:
            ApiError
        """
        conversation = chat.conversation
        if not can_search(conversation):
            return None
        tags, index = [each.tag for each in conversation.candidates], conversation.last_answer
        if index is None:
            way = Way("new", _why_new(conversation), await chat.rendering.whole(), search=Search(tags, {}, opens=True))
        else:
            behind = await chat.rendering.behind_either(index)
            if behind is None:
                return None
            expected = {
                number: behind[1] if each.closed else 0
                for number, each in enumerate(conversation.candidates)
                if each.kind == "end" and each.index == index
            }
            way = Way("continued", "next-turn", behind[0], search=Search(tags, expected, opens=False))
        return way if self.heads.is_for_one_turn(way.prompt) else None

    def came(self, chat: Chat, way: Way, search: Search, found: FoundSession | None) -> Way:
        """The way that was likely, once its turn has found what was expected."""
        if found is None:
            return replace(way, search=None)
        prompt = way.prompt.after(search.expected[found.tag_index])
        return _at(chat, chat.conversation.candidates[found.tag_index], found, prompt)

    async def way(self, client: AsyncClient, chat: Chat, session_id: str = "") -> Way:
        """From the deepest place that is known.

        Args:
            session_id: of the session that it has to be in; "" for any.

        Raises:
            ApiError: 409 where that session has no place of the conversation.
            KakeyaError
        """
        candidates = chat.conversation.candidates
        try:
            found = await client.find_session(
                [each.tag for each in candidates],
                model=chat.conversation.model.served.name,
                session_id=session_id or None,
            )
        except SessionNotFound as error:
            raise ApiError(404, error.message, param=SESSION_ID_HEADER, code="session_not_found") from error
        except RpcFailed as error:
            if error.status is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            return Way("new", "off", await chat.rendering.whole())  # a runtime of an older version
        if session_id and (found is None or found.id != session_id):
            raise await _mismatch(client, session_id)
        return await self.after(client, chat, found)

    async def after(self, client: AsyncClient, chat: Chat, found: FoundSession | None) -> Way:
        """From what the tags of its candidates have come to. Raises ApiError."""
        if found is None:
            return await self.anew(client, chat, _why_new(chat.conversation), is_headless=True)
        candidate = chat.conversation.candidates[found.tag_index]
        if candidate.kind == "head":
            return await self._from_head(client, chat, found)
        way = await _on(chat, candidate, found)
        return way or await self.anew(client, chat, "template")

    async def anew(self, client: AsyncClient, chat: Chat, why: Why, *, is_headless: bool = False) -> Way:
        """With all of the conversation, in a session of its own. Raises ApiError.

        Args:
            is_headless: no session has its head, as is known; otherwise one is looked for.
        """
        prompt = await chat.rendering.whole()
        return await self.heads.way(client, chat, prompt, why, is_absent=is_headless)

    async def _from_head(self, client: AsyncClient, chat: Chat, found: FoundSession) -> Way:
        prompt = await chat.rendering.whole()
        if found.place != prompt.num_pinned:  # what a tag names has these tokens, unless a template has its moods
            return Way("new", "template", prompt)
        return behind_head(prompt, found.id)


async def _on(chat: Chat, candidate: Candidate, found: FoundSession) -> Way | None:
    """On from an answer's beginning or end; None where the template does not allow it."""
    prompt = await _prompt(chat, candidate)
    return None if prompt is None else _at(chat, candidate, found, prompt)


def _at(chat: Chat, candidate: Candidate, found: FoundSession, prompt: Prompt) -> Way:
    goes_back = found.is_last and not found.is_idle_end and found.history_length > found.place
    return Way(
        "continued" if found.is_idle_end or goes_back else "forked",
        _why(chat.conversation, candidate, found),
        prompt,
        source=found.id,
        place=found.place,
        source_length=found.history_length,
        rewinds=goes_back,
        num_reused=found.place,
    )


def can_search(conversation: Conversation) -> bool:
    """Whether turns of its model take what they look for, and the tags of their beginnings, with them."""
    return TURN_SEARCH in conversation.model.served.features


async def _prompt(chat: Chat, candidate: Candidate) -> Prompt | None:
    conversation = chat.conversation
    if candidate.index < len(conversation.messages):
        return await chat.rendering.behind(candidate)
    return Prompt([], is_chat=True, begins=conversation.tokenizer.begins(conversation.variables))


async def _mismatch(client: AsyncClient, session_id: str) -> ApiError:
    """Raises KakeyaError."""
    places = (await client.session(session_id).info()).boundaries
    message = (
        f"the messages do not lead to a place of the session {session_id}; its last turns ended behind "
        f"{', '.join(map(str, places)) or 'no'} tokens"
    )
    return ApiError(409, message, param=SESSION_ID_HEADER, code="session_mismatch")


def _why(conversation: Conversation, candidate: Candidate, found: FoundSession) -> Why:
    if candidate.index == len(conversation.messages):
        return "regenerated"
    if candidate.index != conversation.last_answer:
        return "edited"
    if candidate.kind == "start":
        return "cut-answer" if found.is_last else "edited"
    if found.place == found.history_length:
        return "next-turn" if found.is_idle_end else "busy"
    return "next-turn" if found.is_last else "earlier-place"


def _why_new(conversation: Conversation) -> Why:
    if any(isinstance(message, CompactedMessage) for message in conversation.messages):
        return "compacted"
    return "first-turn" if conversation.last_answer is None else "not-found"
