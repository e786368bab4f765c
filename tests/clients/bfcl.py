"""The data of the Berkeley Function Calling Leaderboard, v4: questions, and the functions that may answer them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.clients.environments import folder

_TYPES = {
    "dict": "object",
    "HashMap": "object",
    "Hashtable": "object",
    "list": "array",
    "tuple": "array",
    "Array": "array",
    "ArrayList": "array",
    "Queue": "array",
    "Stack": "array",
    "Set": "array",
    "float": "number",
    "double": "number",
    "Bigint": "integer",
    "byte": "integer",
    "short": "integer",
    "long": "integer",
    "bool": "boolean",
    "String": "string",
    "char": "string",
    **{name: name for name in ("object", "array", "number", "integer", "boolean", "string")},
}
"""JSON's types by those of Python, Java and JavaScript. What is not here, such as "any", is any JSON."""
_KEPT = ("description", "enum", "required", "minimum", "maximum", "minItems", "maxItems", "default")

_Schema = dict[str, Any]


@dataclass(frozen=True)
class BfclCase:
    """A question.

    Attributes:
        messages: before the first answer.
        functions: JSON schemas of arguments by the function's name.
    """

    id: str
    messages: list[dict[str, Any]]
    functions: dict[str, _Schema]

    @property
    def tools(self) -> list[dict[str, Any]]:
        """As OpenAI's chat completions have them."""
        return [
            {"type": "function", "function": {"name": name, "parameters": schema}}
            for name, schema in self.functions.items()
        ]

    @property
    def bounded(self) -> "BfclCase":
        """The same with bounds of the arguments, see `bounded`."""
        return replace(self, functions={name: bounded(schema) for name, schema in self.functions.items()})


def cases(*categories: str) -> Iterator[BfclCase]:
    """In their order."""
    data = folder("bfcl", "packages/bfcl_eval/data")
    for category in categories:
        for line in (data / f"BFCL_v4_{category}.json").read_text("utf-8").splitlines():
            row = json.loads(line)
            functions = {each["name"]: json_schema(each["parameters"]) for each in row["function"]}
            yield BfclCase(row["id"], row["question"][0], functions)


def json_schema(given: _Schema) -> _Schema:
    """What BFCL has for one, which says types in the words of a programming language."""
    made = {key: given[key] for key in _KEPT if key in given}
    kind = given.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        made["type"] = _TYPES[kind]
    if isinstance(given.get("items"), dict):
        made["items"] = json_schema(given["items"])
    if isinstance(given.get("properties"), dict):
        made["properties"] = {name: json_schema(each) for name, each in given["properties"].items()}
        made["additionalProperties"] = False
    return made


def bounded(schema: _Schema) -> _Schema:
    """The same with a bound of each text, number and list that has none, as a model needs that ends none by itself."""
    made = dict(schema)
    match schema.get("type"):
        case "string" if "enum" not in schema:
            made.setdefault("maxLength", 40)
        case "integer" | "number":
            made = {"minimum": -1_000_000, "maximum": 1_000_000, **made}
        case "array":
            made = {"maxItems": max(4, schema.get("minItems", 0)), **made, "items": bounded(schema.get("items", {}))}
    if "properties" in schema:
        made["properties"] = {name: bounded(each) for name, each in schema["properties"].items()}
    return made
