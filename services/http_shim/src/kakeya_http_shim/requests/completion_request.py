"""The body of POST /v1/completions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from kakeya_http_shim.requests.fields import (
    INTEGRAL,
    LATER,
    Rule,
    ZeroOnlyWith,
    at_fault,
    honoured,
    refusal,
    without_effect,
)
from kakeya_http_shim.requests.generation_fields import GenerationFields, TokenId
from kakeya_http_shim.requests.refused_fields import OF_PEERS

_MAX_LOGPROBS = 5
_MAX_PROMPTS = 128
MAX_PROMPT_TOKENS = 1 << 20
"""As ids; a text may have more, and none of either is seen at once by any model that is served here."""

TokenPrompt = Annotated[list[TokenId], Field(min_length=1, max_length=MAX_PROMPT_TOKENS, fail_fast=True)]


TextPrompt = Annotated[str, StringConstraints(min_length=1)]


def _prompt_branch(given: Any) -> str:
    if not isinstance(given, list):
        return "text_branch"
    first = given[0] if given else ""
    if isinstance(first, list):
        return "token_lists_branch"
    return "tokens_branch" if isinstance(first, int | float) else "texts_branch"


Prompts = Annotated[
    Annotated[TextPrompt, Tag("text_branch")]
    | Annotated[list[TextPrompt], Field(min_length=1, max_length=_MAX_PROMPTS, fail_fast=True), Tag("texts_branch")]
    | Annotated[TokenPrompt, Tag("tokens_branch")]
    | Annotated[
        list[TokenPrompt], Field(min_length=1, max_length=_MAX_PROMPTS, fail_fast=True), Tag("token_lists_branch")
    ],
    Discriminator(_prompt_branch),
]


def _no_text_after(given: Any) -> Any:
    if isinstance(given, str) and given:
        raise refusal(LATER)
    return given


class CompletionRequest(GenerationFields):
    """A text, or several, to go on with."""

    prompt: Prompts = honoured(..., "a text, texts, token ids, or lists of them")
    max_tokens: Annotated[int, Field(ge=0, lt=1 << 32), INTEGRAL] | None = honoured(
        None, "16 by default, as in OpenAI's API; 0, with echo: the prompt alone"
    )
    echo: bool | None = honoured(
        None, "the prompt's text before the answer's; with logprobs also how likely each of its tokens was"
    )
    logprobs: Annotated[int, Field(ge=0, le=_MAX_LOGPROBS), INTEGRAL] | None = honoured(
        None, "that many of the likeliest tokens, 0 to 5"
    )

    best_of: Annotated[int, INTEGRAL] | None = without_effect("equal to n: nothing is left to choose from")
    suffix: Annotated[Literal[""], BeforeValidator(_no_text_after)] | None = without_effect(
        "empty: nothing is inserted"
    )

    rules: ClassVar[Sequence[Rule]] = (*GenerationFields.rules, ZeroOnlyWith("max_tokens", "echo"))
    refused: ClassVar[Mapping[str, str]] = OF_PEERS | {
        "max_completion_tokens": "not of this API; max_tokens is",
        "messages": "not of this API; /v1/chat/completions takes them",
    }

    @property
    def prompts(self) -> list[str | list[int]]:
        """One for each text or list of token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)

    @model_validator(mode="after")
    def _nothing_to_choose_from(self) -> Self:
        if self.best_of is not None and self.best_of != self.num_choices:
            raise at_fault("best_of", "must equal n")
        return self
