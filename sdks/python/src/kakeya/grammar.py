"""What an answer can be held to, and what it may think before."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from kakeya_stubs.v1 import runtime_pb2


@dataclass(frozen=True)
class Grammar:
    """Made by one of its class methods; at most 256 KiB.

    What cannot be used is an `InvalidField` of the generation, which says why.
    """

    wire: runtime_pb2.Grammar

    @classmethod
    def json_object(cls) -> Self:
        """Any JSON object."""
        return cls.json_schema({"type": "object"})

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool | str) -> Self:
        """JSON that a JSON Schema accepts. Args: `schema`: itself, or its text."""
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False)
        return cls(runtime_pb2.Grammar(json_schema=text))

    @classmethod
    def regex(cls, pattern: str) -> Self:
        """A text that matches a regular expression as a whole, in the syntax of Rust's crate regex."""
        return cls(runtime_pb2.Grammar(regex=pattern))

    @classmethod
    def choice(cls, texts: Iterable[str]) -> Self:
        """One of these texts."""
        return cls(runtime_pb2.Grammar(choice=runtime_pb2.Grammar.Choice(texts=texts)))

    @classmethod
    def lark(cls, grammar: str) -> Self:
        """A grammar in llguidance's form of Lark."""
        return cls(runtime_pb2.Grammar(lark=grammar))


@dataclass(frozen=True)
class Reasoning:
    """How a model thinks before it answers: a grammar begins behind that.

    Attributes:
        end_token_ids: the thought ends with these, in this order; 1 to 16.
        begin_token_ids: an answer that does not begin with these has no thought; none: it begins within it.
        max_tokens: of the generation, after which the end of the thought is all that may come; 0: no bound.
    """

    end_token_ids: Sequence[int]
    begin_token_ids: Sequence[int] = ()
    max_tokens: int = 0

    @property
    def wire(self) -> runtime_pb2.Reasoning:
        """Raises TypeError or ValueError: a value does not fit its field."""
        return runtime_pb2.Reasoning(
            end_token_ids=self.end_token_ids, begin_token_ids=self.begin_token_ids, max_tokens=self.max_tokens
        )
