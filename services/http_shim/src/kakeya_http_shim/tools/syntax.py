"""What the families of syntax have in common."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kakeya_http_shim.tools.source import Reading, Source


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model wrote it.

    Attributes:
        arguments: JSON, an object.
        id: that the model gave it; None where it gave none.
    """

    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """What the model may call.

    Attributes:
        schemas: the JSON schema of the arguments by the tool's name; empty where it has none.
    """

    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Mapping[str, Any]]) -> "OfferedTools":
        """Of `tools` as OpenAI's chat completions have them.

        Raises:
            KeyError: one has no function or no name.
        """
        functions = [tool["function"] for tool in tools]
        return cls({function["name"]: function.get("parameters") or {} for function in functions})

    def __contains__(self, name: object) -> bool:
        return name in self.schemas


class Syntax(Protocol):
    """How a family of models writes calls.

    Attributes:
        marks: all that stand around calls and in them. Where one is a special token of the tokenizer, which decoding
            hides, its text must come to the parser nevertheless.
        openers: those marks that open a call wherever they stand; none has its first letter again.
        bare: letters that may open a call without a mark at the beginning of a line.
        closers: what may stand behind a call that was told and is no text and no other call.
    """

    @property
    def marks(self) -> tuple[str, ...]: ...

    @property
    def openers(self) -> tuple[str, ...]: ...

    @property
    def bare(self) -> str: ...

    @property
    def closers(self) -> tuple[str, ...]: ...

    def read(self, opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        """Reads on behind an opener, to the end of what it opened, and tells each call as soon as it is whole.

        Args:
            opener: the mark, which was taken; empty before a bare letter, which was not.

        Raises:
            Malformed: it is no call; what was taken since the last one that was told is text.
            Cut: the text ends within a call.
        """
        ...
