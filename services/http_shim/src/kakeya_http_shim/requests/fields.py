"""How the fields of a request are declared: each is honoured, or accepted without effect, or refused by name.

The tables of docs/http-fields.md are generated from these declarations (`make docs`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from kakeya_http_shim.problems import ApiError
from kakeya_http_shim.requests import json_text

HONOURED, WITHOUT_EFFECT = "honoured", "without effect"
LATER: Final = "not served yet"
"""Why what is known, and will be served, is refused."""
BRANCH = "_branch"
"""Ends the tags of unions, which are no part of a field's place in the body."""
_OF_A_KEY = "[key]"
"""Follows the name of a dictionary's key that is itself at fault."""


def honoured(default: Any, help: str, **limits: Any) -> Any:
    """A field that does what OpenAI's API says it does, or `help` where that differs."""
    return Field(default, description=help, json_schema_extra={"x-kakeya": HONOURED}, **limits)


def without_effect(help: str) -> Any:
    """A field that may be given and changes nothing; `help` says why that is right."""
    return Field(None, description=help, json_schema_extra={"x-kakeya": WITHOUT_EFFECT})


def _must_be_boolean(given: Any) -> Any:
    if not isinstance(given, bool):
        raise PydanticCustomError("bool_type", "must be false")
    return given


def _as_integer(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given


def known(*values: str, why: str = LATER) -> BeforeValidator:
    """Of a field that takes some of what is known: these values, and objects, are refused with a reason."""
    return known_by_reason({why: values}, of_objects=why)


def known_by_reason(values: Mapping[str, Iterable[str]], *, of_objects: str = LATER) -> BeforeValidator:
    """Likewise with several reasons, each with its values. One validator: a conversation brings hundreds of items."""
    reasons = {value: why for why, several in values.items() for value in several}

    def check(given: Any) -> Any:
        if isinstance(given, str):
            if given in reasons:
                raise refusal(reasons[given])
        elif isinstance(given, dict):
            raise refusal(of_objects)
        return given

    return BeforeValidator(check)


INTEGRAL: Final = BeforeValidator(_as_integer)
"""Of an integer: 8.0 is one, as JSON Schema has it and some languages write it. Put it behind the limits."""

OnlyFalse = Annotated[Literal[False], BeforeValidator(_must_be_boolean)]
"""`false` and nothing else: a Literal by itself takes 0 for it, since these are equal in Python."""


class Rule(Protocol):
    """What fields demand of each other."""

    def check(self, given: BaseModel) -> None:
        """For a validator. Raises PydanticCustomError."""
        ...

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        ...


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """A rule between two fields: one says something only where the other is true."""

    field: str
    other: str

    def check(self, given: BaseModel) -> None:
        """For a validator. Raises PydanticCustomError."""
        if getattr(given, self.field) and not getattr(given, self.other):
            raise at_fault(self.field, f"only with {self.other}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        says_nothing = {"properties": {self.field: {"enum": [None, False, 0]}}}  # JSON tells false from 0
        other_is_true = {"properties": {self.other: {"const": True}}, "required": [self.other]}
        return {"anyOf": [says_nothing, other_is_true]}


@dataclass(frozen=True, slots=True)
class NotBoth:
    """Of two fields one at most says something: is neither null nor false."""

    field: str
    other: str

    def check(self, given: BaseModel) -> None:
        """For a validator. Raises PydanticCustomError."""
        if all(getattr(given, name) not in (None, False) for name in (self.field, self.other)):
            raise at_fault(self.field, f"not together with {self.other}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        return {"anyOf": [{"properties": {name: {"enum": [None, False]}}} for name in (self.field, self.other)]}


@dataclass(frozen=True, slots=True)
class ZeroOnlyWith:
    """A number is 0 only where the other field is true."""

    field: str
    other: str

    def check(self, given: BaseModel) -> None:
        """For a validator. Raises PydanticCustomError."""
        if getattr(given, self.field) == 0 and not getattr(given, self.other):
            raise at_fault(self.field, f"0 only with {self.other}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        is_more = {"properties": {self.field: {"not": {"const": 0}}}}
        other_is_true = {"properties": {self.other: {"const": True}}, "required": [self.other]}
        return {"anyOf": [is_more, other_is_true]}


@dataclass(frozen=True, slots=True)
class OneOf:
    """Of some fields exactly one is given; or none, where none is needed."""

    fields: tuple[str, ...]
    is_needed: bool = True

    def check(self, given: BaseModel) -> None:
        """For a validator. Raises PydanticCustomError."""
        names = [name for name in self.fields if getattr(given, name) is not None]
        if len(names) > 1 or (self.is_needed and not names):
            raise at_fault(names[-1] if names else self.fields[0], f"give one of {', '.join(self.fields)}")

    def schema(self) -> dict[str, Any]:
        """The same in JSON Schema."""
        one = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in self.fields]
        none = {"properties": {name: {"type": "null"} for name in self.fields}}
        return {"oneOf": one if self.is_needed else [*one, none]}


def _complete(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """What of a RequestModel's doing pydantic does not know."""
    schema["additionalProperties"] = {"anyOf": [{"type": "null"}, {"type": "array", "maxItems": 0}]}
    if issubclass(model, RuledModel):
        schema["allOf"] = [rule.schema() for rule in model.rules]


class RequestModel(BaseModel):
    """Base of what clients send: exact types, no field that is not declared, numbers that are numbers.

    Attributes:
        refused: fields of OpenAI's API that are not served here, with the reason.

    A field that is not served, or not known, is as good as not there where it is null or an empty list: clients send
    back whole objects, and name what they do not use.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, allow_inf_nan=False, frozen=True, json_schema_extra=_complete
    )

    refused: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _refuse_by_name(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        known = _names(cls)
        if given.keys() <= known:
            return given
        for name in cls.refused.keys() & given.keys():
            if given[name] not in (None, []):
                raise refusal(cls.refused[name], name)
        return {name: value for name, value in given.items() if name in known or value not in (None, [])}

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Reads a request. Raises ApiError, which names the field that is at fault."""
        try:
            return cls.model_validate_json(json_text.utf8(body))
        except ValidationError as error:
            raise problem(error, body) from None


class RuledModel(RequestModel):
    """One with rules between its fields. Of messages, which have none, a conversation brings hundreds."""

    rules: ClassVar[Sequence[Rule]]

    @model_validator(mode="after")
    def _obey_rules(self) -> Self:
        for rule in self.rules:
            rule.check(self)
        return self


@cache
def _names(model: type[BaseModel]) -> frozenset[str]:
    """Of its fields, as clients write them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


def at_fault(field: str, message: str) -> PydanticCustomError:
    """The error of a validator that looks at several fields and blames one."""
    return PydanticCustomError("at_fault", "{message}", {"message": message, "field": field})


def refusal(reason: str, field: str = "") -> PydanticCustomError:
    """The error of a validator that knows what was asked for and does not serve it.

    Args:
        field: within what is validated; "" blames that itself.
    """
    return PydanticCustomError("refused", "{message}", {"message": f"not supported: {reason}", "field": field})


def problem(error: ValidationError, body: bytes = b"") -> ApiError:
    """The first thing that is wrong, with the place where it is.

    Args:
        body: that was read, if it was.
    """
    errors = error.errors(include_url=False)
    first = errors[0]
    if first["type"] == "json_invalid":
        return json_text.fault(body, first["ctx"]["error"])
    context = first.get("ctx", {})
    place = _place(first["loc"], context.get("field"))
    message = context.get("message") or first["msg"]
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"unknown field {place}", param=place, code="unknown_parameter")
    code = {"refused": "unsupported_parameter", "missing": "missing_required_parameter"}.get(
        first["type"], "invalid_value"
    )
    return ApiError(400, f"{place or 'the body'}: {message}", param=place or None, code=code)


def _place(location: tuple[int | str, ...], field: str | None) -> str:
    """`messages[0].content`: pydantic's location without the names of a union's branches."""
    place = ""
    for part in (*location, *([field] if field else [])):
        if isinstance(part, int):
            place += f"[{part}]"
        elif part != _OF_A_KEY and not part.endswith(BRANCH):
            place += f".{part}" if place else part
    return place
