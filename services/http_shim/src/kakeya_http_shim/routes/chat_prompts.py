"""The prompts of one chat request, each written when it is asked for."""

from dataclasses import dataclass, field

from kakeya_http_shim.conversations.chat import Conversation
from kakeya_http_shim.conversations.tags import Candidate
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.models.served_models import TextModel
from kakeya_http_shim.requests.chat_request import ChatRequest
from kakeya_http_shim.requests.inner_system import without_inner_system
from kakeya_http_shim.routes import prompts

_MAX_SHORT_MESSAGES = 8
"""More of them are a long conversation, also where the request that goes on from it is short."""


def fitting(body: ChatRequest, model: TextModel) -> ChatRequest:
    """A request of an agent with its system messages where the model's chat template takes them."""
    if model.tokenizer.takes_inner_system:
        return body
    return body.model_copy(update={"messages": without_inner_system(body.messages)})


@dataclass(frozen=True)
class ChatPrompts:
    """Writes them as `Rendering` has it.

    Attributes:
        conversation: that the request sends.
        max_tokens: that a prompt may have.
        is_short: the request is, whatever it goes on from; a long one is worked on off the event loop.
    """

    body: ChatRequest
    model: TextModel
    conversation: Conversation
    max_tokens: int
    is_short: bool
    _written: list[Prompt] = field(default_factory=list, init=False)

    async def whole(self) -> Prompt:
        """Written once. Raises ApiError."""
        if not self._written:
            self._written.append(await prompts.without_waiting(self._whole, is_short=self._is_all_short))
        return self._written[0]

    @property
    def _is_all_short(self) -> bool:
        return self.is_short and len(self.body.messages) <= _MAX_SHORT_MESSAGES

    def _whole(self) -> Prompt:
        return prompts.whole_chat(self.body, self.model, max_tokens=self.max_tokens)

    async def behind(self, candidate: Candidate) -> Prompt | None:
        """Raises ApiError."""
        return await prompts.without_waiting(
            lambda: prompts.behind(self.conversation, candidate, max_tokens=self.max_tokens),
            is_short=self._is_all_short,
        )

    async def behind_either(self, index: int) -> tuple[Prompt, int] | None:
        """Raises ApiError."""
        return await prompts.without_waiting(
            lambda: prompts.behind_either(self.conversation, index, max_tokens=self.max_tokens), is_short=self.is_short
        )
