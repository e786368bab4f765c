"""A grammar as it is asked for, and in the library's own form."""

import hashlib
import json
from dataclasses import dataclass

from llguidance import LLMatcher

from kakeya_shared.errors.tree import InvalidField

FORM = 1
"""Raise it with any change to what is made of a grammar here: other workers' answers do not go on with it then."""

# A model that may write white space for ever does so at times: between the parts of JSON there is one space at most, or
# a line break with an indentation.
_WHITE_SPACE = r"[ ]|\n[ ]{0,20}"
_MAX_REASON_CHARACTERS = 600  # an error travels in headers, of 8 KiB in all


@dataclass(frozen=True)
class Grammar:
    """One of `kakeya.v1.Grammar`.

    Attributes:
        kind: its field: "json_schema", "regex", "choice" or "lark".
        texts: those of a choice; else the one.
    """

    kind: str
    texts: tuple[str, ...]

    @property
    def digest(self) -> bytes:
        """Of equal ones alone it is equal; 16 bytes."""
        return hashlib.blake2b(json.dumps([self.kind, *self.texts]).encode(), digest_size=16).digest()

    @property
    def library_form(self) -> str:
        """Raises InvalidField: what should be JSON is not. What else is wrong the library says."""
        match self.kind:
            case "choice":
                # Escaped as JSON escapes, of which the library knows all.
                return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, self.texts)))
            case "json_schema":
                return self._of_schema()
            case "regex":
                return LLMatcher.grammar_from_regex(self.texts[0])
            case _:
                return LLMatcher.grammar_from_lark(self.texts[0])

    def refused(self, why: str) -> InvalidField:
        """The same, whatever it is that cannot be used, or why."""
        field = f"grammar.{self.kind}"
        return InvalidField(f"{field}: {why.strip()[:_MAX_REASON_CHARACTERS]}", metadata={"field": field})

    def _of_schema(self) -> str:
        """The library puts the text into JSON of its own: what is none could be anything there."""
        (text,) = self.texts
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.refused(f"is not JSON: {error}") from error
        if parsed is True:
            parsed, text = {}, "{}"  # the same to JSON Schema
        if not isinstance(parsed, dict):
            raise self.refused("is no schema that any JSON is of: an object, or true")
        try:
            return LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_pattern": _WHITE_SPACE})
        except ValueError as error:  # what only Python takes for JSON
            raise self.refused(str(error)) from error
