"""A piece of an answer, whichever API it is told in."""

from collections.abc import Iterable
from dataclasses import dataclass

from kakeya_http_shim.tools.deltas import CallBegun, Content, merged
from kakeya_http_shim.tools.deltas import Delta as Part


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token of an answer, and how likely it was.

    Attributes:
        text: its own; what is no UTF-8 by itself is replaced.
        data: its bytes.
        logprob: natural logarithm, of the raw logits' softmax.
        offset: characters of the answer, thoughts included, before it.
        likeliest: text, bytes and logprob of the likeliest tokens, descending.
        has_logprob: False of a history's first token, which nothing precedes.
    """

    text: str
    data: bytes
    logprob: float
    offset: int
    likeliest: tuple[tuple[str, bytes, float], ...]
    has_logprob: bool = True


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer, or all of it.

    Attributes:
        parts: what is said in it: content and calls of tools, in order, none of them empty.
        reasoning: what is thought in it, before that.
        likelihoods: of the tokens that begin in this piece; those of a call may come before it does.
        num_tokens: of the answer up to here.
    """

    parts: tuple[Part, ...] = ()
    reasoning: str = ""
    likelihoods: tuple[Likelihood, ...] = ()
    num_tokens: int = 0

    @classmethod
    def saying(cls, content: str, likelihoods: tuple[Likelihood, ...] = ()) -> "Delta":
        """One with no more than that."""
        return cls((Content(content),) if content else (), likelihoods=likelihoods)

    @classmethod
    def joined(cls, pieces: Iterable["Delta"]) -> "Delta":
        """All pieces of an answer as one; adjacent texts are one part."""
        pieces = list(pieces)
        return cls(
            merged(part for piece in pieces for part in piece.parts),
            "".join(piece.reasoning for piece in pieces),
            tuple(likelihood for piece in pieces for likelihood in piece.likelihoods),
            pieces[-1].num_tokens if pieces else 0,
        )

    @property
    def content(self) -> str:
        """Without calls."""
        return "".join(part.text for part in self.parts if isinstance(part, Content))

    @property
    def has_calls(self) -> bool:
        """Whether a call begins in it."""
        return any(isinstance(part, CallBegun) for part in self.parts)

    def __bool__(self) -> bool:
        return bool(self.parts or self.reasoning or self.likelihoods)
