"""What an answer cost, and what of the conversation the model no longer sees."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from kakeya_http_shim.choices.opened import Spent
from kakeya_http_shim.conversations.said import Said, State, Why


class PromptTokensDetails(BaseModel):
    """Of the prompt's tokens."""

    cached_tokens: int = Field(description="not computed again, since the conversation's session had them")


class SessionUsage(BaseModel):
    """Which session a chat's answer came from, as the header `Kakeya-Session` says it."""

    state: State
    id: str = Field("", description="none of a session that ended with its answer")
    appended: int = Field(description="tokens that the request added to its history")
    reused: int = Field(description="tokens that were there before")
    why: Why = Field(description="see docs/http-sessions.md")


class ForgottenParts(BaseModel):
    """Whether what an agent counts on is no longer seen, as far as that is known; null: it may be."""

    tools: bool | None = Field(None, description="a part of the list of tools; where the request has one")
    results: bool | None = Field(None, description="a part of what tools have answered; where a tool has")


class Drafts(BaseModel):
    """Tokens that the session's proposer drafted.

    OpenAI's `completion_tokens_details` counts tokens of a prediction that the client sent, and bills those that were
    wrong; these are of the runtime's own, and in no other count.
    """

    drafted: int = Field(description="tokens that were drafted and checked")
    accepted: int = Field(description="those that were right, which are part of the answer")


class Sight(BaseModel):
    """What OpenAI's API has no field for; of several answers, that of the longest one."""

    history: int = Field(description="tokens of prompt and answer")
    retained: int = Field(description="those that the model still saw at the end")
    evicted: int = Field(description="those that it did not see any more")
    session: SessionUsage | None = Field(None, description="of chats; the first answer's")
    forgotten: ForgottenParts | None = Field(None, description="of chats with tools, at the end of an answer")
    drafts: Drafts | None = Field(None, description="of all answers, where there were any (speculative decoding)")


class Usage(BaseModel):
    """Tokens, all counted by the runtime."""

    prompt_tokens: int
    completion_tokens: int = Field(description="one that ended the answer included")
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    kakeya: Sight


def usage(prompts: Sequence[Spent], answers: Sequence[Spent]) -> Usage:
    """Of a request.

    Args:
        prompts: one answer of each prompt, which is counted once.
        answers: all of them.
    """
    num_prompt_tokens = sum(each.num_prompt_tokens for each in prompts)
    num_tokens = sum(each.num_tokens for each in answers)
    num_reused = sum(each.said.num_reused for each in prompts if each.said)
    longest = max(answers, key=lambda each: each.history_length)
    return Usage(
        prompt_tokens=num_prompt_tokens,
        completion_tokens=num_tokens,
        total_tokens=num_prompt_tokens + num_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=num_reused),
        kakeya=Sight(
            history=longest.history_length,
            retained=longest.num_retained,
            evicted=longest.history_length - longest.num_retained,
            **_session(prompts[0].said),
            **_forgotten(longest),
            **_drafts(answers),
        ),
    )


def _session(said: Said | None) -> dict[str, Any]:
    if said is None:
        return {}
    named = {"id": said.session_id} if said.session_id else {}
    told = SessionUsage(state=said.state, appended=said.num_appended, reused=said.num_reused, why=said.why, **named)
    return {"session": told}


def _forgotten(spent: Spent) -> dict[str, Any]:
    return {} if spent.forgotten is None else {"forgotten": ForgottenParts(**spent.forgotten)}


def _drafts(answers: Sequence[Spent]) -> dict[str, Any]:
    num_drafted = sum(each.num_drafted for each in answers)
    num_accepted = sum(each.num_accepted for each in answers)
    return {"drafts": Drafts(drafted=num_drafted, accepted=num_accepted)} if num_drafted else {}


def usage_so_far(spent: Spent | None) -> Usage | None:
    """Of one answer, where an event is to tell it."""
    return None if spent is None else usage([spent], [spent])
