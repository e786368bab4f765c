"""What form an answer is to have, as `response_format` says it."""

import json
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, StringConstraints, Tag

from kakeya import Grammar
from kakeya_http_shim.requests.fields import BRANCH, RequestModel, honoured, known, without_effect

_FORMS = ("json_object", "json_schema")


class TextFormat(RequestModel):
    """No form."""

    type: Annotated[Literal["text"], known("structural_tag", why="offer tools")]

    @property
    def grammar(self) -> Grammar | None:
        return None


class JsonFormat(RequestModel):
    """Any JSON object."""

    type: Literal["json_object"]

    @property
    def grammar(self) -> Grammar | None:
        return Grammar.json_object()


class NamedSchema(RequestModel):
    """A JSON schema with its name."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = honoured(
        ..., "letters, digits, `_` and `-`, up to 64; the model is not told of it"
    )
    description: str | None = without_effect("the model is not told of the schema: say in a message what is wanted")
    schema_: dict[str, JsonValue] | None = Field(
        None,
        alias="schema",
        description="what of it cannot be held to is refused by name; any JSON object by default",
        json_schema_extra={"x-kakeya": "honoured"},
    )
    strict: bool | None = without_effect("every answer is held to the schema")


class SchemaFormat(RequestModel):
    """JSON that a schema accepts."""

    type: Literal["json_schema"]
    json_schema: NamedSchema = honoured(..., "see below")

    @property
    def grammar(self) -> Grammar | None:
        schema = self.json_schema.schema_
        return Grammar.json_object() if schema is None else Grammar.json_schema(json.dumps(schema, ensure_ascii=False))


def _branch(given: Any) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    return f"{kind}{BRANCH}" if kind in _FORMS else f"text{BRANCH}"


AnswerFormat = Annotated[
    Annotated[TextFormat, Tag("text_branch")]
    | Annotated[JsonFormat, Tag("json_object_branch")]
    | Annotated[SchemaFormat, Tag("json_schema_branch")],
    Discriminator(_branch),
]
