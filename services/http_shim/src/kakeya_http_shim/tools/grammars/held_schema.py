"""What of a tool's schema says which arguments there are: grammars have a longest length, and descriptions are long."""

from collections.abc import Mapping
from typing import Any

_TOLD = frozenset(
    ("title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
"""Keywords that tell of values, and refuse none."""
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
"""Of schemas by names of any kind."""
_VALUES = frozenset(("enum", "const"))


def essential(schema: Any) -> Any:
    """The same schema without what is told of values."""
    if isinstance(schema, list):
        return [essential(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _of_keyword(key, value) for key, value in schema.items() if key not in _TOLD}


def _of_keyword(keyword: str, value: Any) -> Any:
    if keyword in _VALUES:
        return value
    if keyword in _BY_NAME and isinstance(value, Mapping):
        return {name: essential(each) for name, each in value.items()}
    return essential(value)
