"""The bodies of the routes between text and tokens, as vLLM and llama.cpp have them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from kakeya_http_shim.requests.completion_request import MAX_PROMPT_TOKENS
from kakeya_http_shim.requests.fields import NotBoth, OneOf, RequestModel, Rule, honoured
from kakeya_http_shim.requests.generation_fields import ModelName, TokenId
from kakeya_http_shim.requests.messages import Messages
from kakeya_http_shim.requests.template_fields import TemplateFields

_OF_TEMPLATES: Mapping[str, str] = {"chat_template": "the model's own is used"}
_OF_MESSAGES = ("continue_final_message", "chat_template_kwargs", "tools")


class TokenizeRequest(TemplateFields):
    """A text, or a conversation, whose tokens are wanted."""

    model: ModelName | None = honoured(None, "may be left out where the runtime has a default")
    prompt: str | None = honoured(None, "a text as /v1/completions takes it (vLLM)")
    content: str | None = honoured(None, "a text (llama.cpp)")
    messages: Messages | None = honoured(None, "a conversation as /v1/chat/completions takes it (vLLM)")
    add_special_tokens: bool | None = honoured(
        None, "those that the tokenizer puts around a text; true by default for `prompt`, false for `content`"
    )
    add_special: bool | None = honoured(None, "llama.cpp's name for add_special_tokens")
    parse_special: bool | None = honoured(
        None,
        "whether what looks like a control token in `prompt` or `content` is one; as in completions by default "
        "(llama.cpp's)",
    )
    return_token_strs: bool | None = honoured(None, "what each token stands for by itself, too")

    rules: ClassVar[Sequence[Rule]] = (
        *TemplateFields.rules,
        OneOf(("prompt", "content", "messages")),
        NotBoth("add_special_tokens", "messages"),
        NotBoth("add_special", "messages"),
        NotBoth("parse_special", "messages"),
        *(NotBoth(name, text) for name in _OF_MESSAGES for text in ("prompt", "content")),
        OneOf(("add_special", "add_special_tokens"), is_needed=False),
    )
    refused: ClassVar[Mapping[str, str]] = {**_OF_TEMPLATES, "with_pieces": "return_token_strs is served"}

    @property
    def adds_special_tokens(self) -> bool:
        """Whether a text gets those that the tokenizer puts around it."""
        given = self.add_special if self.add_special_tokens is None else self.add_special_tokens
        return self.prompt is not None if given is None else given


class DetokenizeRequest(RequestModel):
    """Tokens whose text is wanted."""

    model: ModelName | None = honoured(None, "may be left out where the runtime has a default")
    tokens: Annotated[list[TokenId], Field(max_length=MAX_PROMPT_TOKENS, fail_fast=True)] = honoured(..., "token ids")


class TemplateRequest(TemplateFields):
    """A conversation that is wanted as the model's chat template writes it."""

    model: ModelName | None = honoured(None, "may be left out where the runtime has a default")
    messages: Messages = honoured(..., "as /v1/chat/completions takes them")

    refused: ClassVar[Mapping[str, str]] = _OF_TEMPLATES
