"""The body of POST /v1/completions."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from kakeya_http_shim.requests.fields import INTEGRAL, OnlyFalse, at_fault, honoured, without_effect
from kakeya_http_shim.requests.generation_fields import GenerationFields, NumTokens

_MAX_LOGPROBS = 5
_MAX_PROMPTS = 128
_MAX_PROMPT_TOKENS = 1 << 20
"""As ids; a text may have more, and none of either is seen at once by any model that is served here."""

TokenId = Annotated[int, Field(ge=0, lt=1 << 32), INTEGRAL]
TokenPrompt = Annotated[list[TokenId], Field(min_length=1, max_length=_MAX_PROMPT_TOKENS, fail_fast=True)]


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


class CompletionRequest(GenerationFields):
    """A text, or several, to go on with."""

    prompt: Prompts = honoured(..., "a text, texts, token ids, or lists of them")
    max_tokens: NumTokens | None = honoured(None, "16 by default, as in OpenAI's API")
    logprobs: Annotated[int, Field(ge=0, le=_MAX_LOGPROBS), INTEGRAL] | None = honoured(
        None, "that many of the likeliest tokens, 0 to 5"
    )

    best_of: Annotated[int, INTEGRAL] | None = without_effect("equal to n: nothing is left to choose from")
    echo: OnlyFalse | None = without_effect("false: the prompt is not repeated")
    suffix: Literal[""] | None = without_effect("empty: nothing is inserted")

    refused: ClassVar[Mapping[str, str]] = {
        "repetition_penalty": "presence_penalty and frequency_penalty are served",
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
