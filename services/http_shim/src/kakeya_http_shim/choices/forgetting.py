"""Whether a model has forgotten what it may call, or what a tool has answered."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya import GenerateResult
from kakeya.text.chat_tokenizer import TokenizerError, Tools
from kakeya.text.rendering.kept import key_of
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.messages import Message, for_template

_OF_HEAD = ("system", "developer")
_TURNS = [{"role": role, "content": text} for role, text in (("user", "A"), ("assistant", "B"), ("user", "C"))]
"""Some templates write the tools before the last thing that the person says: at first that is the head."""

Forgotten = Mapping[str, bool | None]
"""Of `tools` and `results`, where a chat has these: whether a part of them was; None: that is not known."""


@dataclass(frozen=True)
class Watch:
    """What of a chat may be forgotten.

    Attributes:
        begins_with: messages before the first result; of a chat without one up to the first that is not of its head.
        variables: what its chat template is told beside them.
        tools: that the model is told of; None where there are none.
        has_results: tools have answered.
    """

    model: TextModel
    begins_with: Sequence[Message]
    variables: Mapping[str, Any] | None
    tools: Tools | None
    has_results: bool

    @classmethod
    def of(cls, body: ChatRequest, model: TextModel) -> "Watch | None":
        """None: there is nothing of that kind."""
        roles = [message.role for message in body.messages]
        has_results = "tool" in roles
        if not has_results and body.told is None:
            return None
        first = next((index for index, role in enumerate(roles) if role not in _OF_HEAD), len(roles))
        length = roles.index("tool") if has_results else first + 1
        return cls(model, body.messages[:length], body.chat_template_kwargs, body.told, has_results)

    async def forgotten(self, num_forgotten: int, done: GenerateResult | None) -> Forgotten:
        """Of a session that has forgotten so many tokens.

        Args:
            done: says which; None where that is not known.
        """
        tools = results = None if num_forgotten else False
        if num_forgotten and done is not None and done.retained:
            tools, results = await asyncio.to_thread(self._of, done.retained)
        told = {"tools": tools, "results": results}
        has = {"tools": self.tools is not None, "results": self.has_results}
        return {name: told[name] for name in told if has[name]}

    def _of(self, retained: Sequence[range]) -> tuple[bool | None, bool | None]:
        """Of the tools and of the results."""
        if not self.begins_with:
            return None, None
        said = [for_template(message) for message in self.begins_with]
        tokenizer = self.model.tokenizer
        told: dict[str, Any] = {"tools": self.tools, "variables": self.variables}

        def counted() -> tuple[int, int]:
            longer = [message for message in said if message["role"] in _OF_HEAD] + _TURNS
            num_pinned = tokenizer.chat_prompt(longer, **told).num_pinned
            return len(tokenizer.chat_prompt(said, end="message", **told).token_ids), num_pinned

        try:
            length, num_pinned = tokenizer.lengths.get(key_of(said, told), counted)
        except TokenizerError:  # a conversation must not end so, says the chat template
            return None, None
        return _is_head_lost(num_pinned, retained[0]), self._are_results_lost(length, retained)

    def _are_results_lost(self, place: int, retained: Sequence[range]) -> bool | None:
        """The oldest is forgotten first. It lies behind all that was said before it, and behind what was thought there.

        Args:
            place: tokens of what was said.
        """
        if place >= retained[-1].start:
            return False
        is_place_certain = not self.model.tokenizer.thinks
        return True if is_place_certain and not any(place in each for each in retained) else None


def _is_head_lost(num_pinned: int, first: range) -> bool | None:
    """The tools are told of in the head, which is pinned; where a template does so further down, that is not known."""
    if not num_pinned:
        return None
    return not (first.start == 0 and num_pinned <= first.stop)
