"""What the contents of items are made of: parts of text, of the client's or of the model's."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from kakeya_http_shim.requests.fields import BRANCH, RequestModel, known, without_effect
from kakeya_http_shim.requests.messages import MAX_MESSAGES

_MEDIA = known(
    "input_image", "input_file", "input_audio", "input_video", "computer_screenshot", why="contents are texts"
)


class InputTextPart(RequestModel):
    """A text of the client's; the only kind of content that is served."""

    type: Annotated[Literal["input_text"], _MEDIA]
    text: str
    prompt_cache_breakpoint: JsonValue = without_effect("what was said before is found again without it")


class OutputTextPart(RequestModel):
    """A text of the model's, in an earlier answer."""

    type: Annotated[Literal["output_text", "input_text"], _MEDIA]
    text: str
    annotations: list[JsonValue] | None = without_effect("texts have none here")
    logprobs: list[JsonValue] | None = without_effect("they are of an answer that was given")
    parsed: JsonValue = without_effect("as openai-python's `parse` adds it")


class OutputRefusalPart(RequestModel):
    """A part in which a model said no; to the chat template a text like any other."""

    type: Literal["refusal"]
    refusal: str


class ThoughtPart(RequestModel):
    """What a model thought before an earlier answer; handed to the chat template."""

    type: Literal["reasoning_text", "text"]
    text: str


def _text_branch(content: Any) -> str:
    return f"{'text' if isinstance(content, str) else 'parts'}{BRANCH}"


InputContent = Annotated[
    Annotated[str, Tag(f"text{BRANCH}")]
    | Annotated[
        list[InputTextPart], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), Tag(f"parts{BRANCH}")
    ],
    Discriminator(_text_branch),
]
ResultContent = Annotated[
    Annotated[str, Tag(f"text{BRANCH}")]
    | Annotated[list[InputTextPart], Field(max_length=MAX_MESSAGES, fail_fast=True), Tag(f"parts{BRANCH}")],
    Discriminator(_text_branch),
]


def _part_branch(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return f"{'refusal' if kind == 'refusal' else 'text_part'}{BRANCH}"


OutputPart = Annotated[
    Annotated[OutputTextPart, Tag(f"text_part{BRANCH}")] | Annotated[OutputRefusalPart, Tag(f"refusal{BRANCH}")],
    Discriminator(_part_branch),
]
OutputContent = Annotated[
    Annotated[str, Tag(f"text{BRANCH}")]
    | Annotated[list[OutputPart], Field(max_length=MAX_MESSAGES, fail_fast=True), Tag(f"parts{BRANCH}")],
    Discriminator(_text_branch),
]
