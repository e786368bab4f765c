"""How an answer may call tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kakeya_http_shim.tools.families import BEGINS_CALL_IN_THOUGHT, SYNTAXES
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools, Syntax


@dataclass(frozen=True, slots=True)
class Calling:
    """Of one request: what its model may call, and how that is read out of what it says.

    Attributes:
        syntax: of the model's family, for the tools that are offered.
        begins_in_thought: behind this a thought has ended, though its tag is missing; None where nothing is.
        only_first: an answer ends with its first call.
    """

    syntax: Syntax
    begins_in_thought: str | None = None
    only_first: bool = False

    @classmethod
    def of(cls, family: str, tools: Sequence[Mapping[str, Any]], *, only_first: bool = False) -> "Calling":
        """Of a family in `families.SYNTAXES`.

        Args:
            tools: as OpenAI's chat completions have them.

        Raises:
            KeyError: there is no such family; or a tool has no function, or no name.
        """
        return cls(SYNTAXES[family](OfferedTools.of(tools)), BEGINS_CALL_IN_THOUGHT.get(family), only_first)

    def parser(self) -> ToolCallParser:
        """For one answer."""
        return ToolCallParser(self.syntax, only_first=self.only_first)
