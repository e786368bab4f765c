"""What the text of an answer is told apart into: thoughts, content, calls of tools."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.prompt import Thinking
from kakeya_http_shim.text.calling import Calling
from kakeya_http_shim.text.delta import Delta
from kakeya_http_shim.text.reasoning import TAGS, ReasoningSplit
from kakeya_http_shim.tools.deltas import Answer, Content, joined
from kakeya_http_shim.tools.parser import ToolCallParser


@dataclass(frozen=True)
class AnswerForm:
    """Of one answer.

    Attributes:
        thinking: whether it has thoughts in front that are told apart.
        calling: how calls of tools are read out of it; None: none are.
    """

    tokenizer: ModelTokenizer
    thinking: Thinking = "not"
    calling: Calling | None = None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Its text, in which the marks of calls are, also where they are special tokens."""
        return self.tokenizer.decode_with(token_ids, self._shown)

    def reasoning(self) -> ReasoningSplit:
        """What tells thoughts from the rest, from the beginning."""
        begins = self.calling.begins_in_thought if self.calling else None
        return ReasoningSplit(self.thinking != "not", self.thinking == "inside", answer_begins=begins)

    def parser(self) -> ToolCallParser | None:
        """What tells calls from content, from the beginning."""
        return self.calling.parser() if self.calling else None

    def is_told_by(self, token_ids: Sequence[int], told: Delta) -> bool:
        """Whether tokens are what a client got and no more, so that they stand for it in a history.

        Not where they hold a control token that has no text, nor where an answer was cut within its thoughts, or within
        a call behind others.
        """
        text = self.decode(token_ids)
        if text != self.tokenizer.decode(list(token_ids), special_tokens=True):
            return False
        thoughts, parser = self.reasoning(), self.parser()
        first, last = thoughts.push(text), thoughts.flush()
        reasoning, answer = first[0] + last[0], first[1] + last[1]
        parts = [Content(answer)] if parser is None else [*parser.push(answer), *parser.finish()]
        if (parser is not None and parser.is_over) or reasoning != told.reasoning:
            return False
        said = joined(parts)
        if said.unfinished or _without_ids(said) != _without_ids(joined(told.parts)):
            return False
        return not reasoning or TAGS[1] in text or told.has_calls

    @cached_property
    def _shown(self) -> frozenset[int]:
        marks = self.calling.syntax.marks if self.calling else ()
        ids = (self.tokenizer.vocabulary.special_id(mark) for mark in marks)
        return frozenset(each for each in ids if each is not None)


def _without_ids(answer: Answer) -> tuple[str, list[tuple[str, str]]]:
    """Most models do not say them."""
    return answer.content, [(call.name, call.arguments) for call in answer.calls]
