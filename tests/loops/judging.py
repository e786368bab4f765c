"""Whether a conversation went on in its session, turn by turn, with its new tokens only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from transformers import AutoTokenizer

from tests.loops.families import FamilyModel
from tests.loops.recorder import Exchange
from tests.loops.talking import Held

_MARKER = "Kakeyaanswer"
_MAX_TEMPLATE_TOKENS = 40
"""Around what is said in a turn; each letter of a control token's neighbours may be a token."""


@dataclass(frozen=True)
class Outcome:
    """Of a conversation.

    Attributes:
        num_turns: after the first.
        num_continued: of those.
        reasons: of the others, each with its number.
    """

    num_turns: int
    num_continued: int
    reasons: dict[str, int]


def outcome(exchanges: Sequence[Exchange]) -> Outcome:
    """What became of each turn after the first."""
    later = exchanges[1:]
    others = Counter(f"{each.state} ({each.why})" for each in later if each.state != "continued")
    return Outcome(len(later), len(later) - others.total(), dict(others))


def check_reuse(held: Held, answers: Sequence[Sequence[int]], max_tokens: int) -> None:
    """A turn that goes on has all tokens that were there before, with those of the answer, and appends few."""
    for number, (before, exchange) in enumerate(pairwise(held.exchanges)):
        if exchange.why != "next-turn":
            continue
        said = before.num_reused + before.num_appended + min(len(answers[number]), max_tokens)
        assert exchange.num_reused == said, (number, exchange.session)


def check_appended(exchanges: Sequence[Exchange], model: FamilyModel) -> None:
    """A turn that goes on appends what was asked, in the words of the chat template, and nothing else."""
    for exchange in exchanges[1:]:
        if exchange.why == "next-turn":
            num_asked = len(model.tokens(_text(exchange.body["messages"][-1])))
            assert exchange.num_appended <= num_asked + _MAX_TEMPLATE_TOKENS, exchange.session


def check_repeated(exchanges: Sequence[Exchange], model: FamilyModel) -> None:
    """A turn behind an answer that was cut appends that answer as the client has it, and what is new, to the token."""
    tokenizer = AutoTokenizer.from_pretrained(model.folder)

    def num_tokens(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False).input_ids)

    def written(messages: list[dict[str, str]]) -> str:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    for before, exchange in pairwise(exchanges):
        assert exchange.num_reused == before.num_reused + before.num_appended
        messages = [{"role": each["role"], "content": _text(each)} for each in exchange.body["messages"]]
        *history, answer, asked = messages
        marked = written([*history, {**answer, "content": _MARKER}, asked])
        opened = written(history)
        before_answer, behind = marked.split(_MARKER)
        assert before_answer.startswith(opened)
        assert exchange.num_appended == num_tokens(before_answer + answer["content"] + behind) - num_tokens(opened)


def _text(message: dict[str, object]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
