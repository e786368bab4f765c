"""The grammar of a Generate: what it is made of is checked here, what it means by the worker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from kakeya_router.contract.validation import invalid
from kakeya_shared.contract.generation_limits import MAX_GRAMMAR_BYTES
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import verifier_pb2 as worker_api


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer is held to.

    Attributes:
        kind: which field of `kakeya.v1.Grammar` it is.
        texts: those of a choice; else the one.
    """

    kind: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, asked: api.GenerateRequest) -> Self:
        """Of one that has a grammar. Raises InvalidField."""
        if asked.ignore_eos:
            raise invalid("ignore_eos", "under a grammar an answer ends where that does")
        message = asked.grammar
        kind = message.WhichOneof("kind")
        if kind is None:
            raise invalid("grammar", "has no kind")
        texts = tuple(message.choice.texts) if kind == "choice" else (getattr(message, kind),)
        if not any(texts):
            raise invalid(f"grammar.{kind}", "is empty")
        num_bytes = _num_bytes(texts)
        if num_bytes > MAX_GRAMMAR_BYTES:
            raise invalid(f"grammar.{kind}", f"{num_bytes} bytes; at most {MAX_GRAMMAR_BYTES}")
        return cls(kind, texts)

    @property
    def message(self) -> worker_api.Grammar:
        """For the worker."""
        match self.kind:
            case "choice":
                return worker_api.Grammar(choice=worker_api.Grammar.Choice(texts=self.texts))
            case "json_schema":
                return worker_api.Grammar(json_schema=self.texts[0])
            case "regex":
                return worker_api.Grammar(regex=self.texts[0])
            case _:
                return worker_api.Grammar(lark=self.texts[0])


def _num_bytes(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)
