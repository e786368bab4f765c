"""The text of an answer as its tokens come: whole characters, without stop texts, thoughts apart."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kakeya import TokenDetail
from kakeya.text.detokenizer import Detokenizer
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.text.reasoning import ReasoningSplit
from kakeya_http_shim.text.stop_texts import StopTexts
from kakeya_http_shim.text.token_texts import TokenTexts


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token of an answer, and how likely it was.

    Attributes:
        text: its own; what is no UTF-8 by itself is replaced.
        data: its bytes.
        logprob: natural logarithm, of the raw logits' softmax.
        offset: characters of the answer, thoughts included, before it.
        likeliest: text, bytes and logprob of the likeliest tokens, descending.
    """

    text: str
    data: bytes
    logprob: float
    offset: int
    likeliest: tuple[tuple[str, bytes, float], ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer.

    Attributes:
        likelihoods: of the tokens that begin in this piece.
    """

    content: str
    reasoning: str = ""
    likelihoods: tuple[Likelihood, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.likelihoods)


class AnswerText:
    """Tokens in, pieces of text out.

    Args:
        stop_texts: looked for in the content; thoughts that are told apart may hold them.
        splits_reasoning: whether thoughts are told apart from the content.
        begins_in_thought: the prompt has opened the thoughts already.

    Attributes:
        is_stopped: a stop text was found; what comes after it is none of the answer.
    """

    def __init__(
        self,
        tokenizer: ModelTokenizer,
        stop_texts: tuple[str, ...],
        *,
        splits_reasoning: bool,
        begins_in_thought: bool,
    ) -> None:
        self._texts = TokenTexts(tokenizer)
        self._eos_token_ids = frozenset(tokenizer.eos_token_ids)
        self._detokenizer = Detokenizer(tokenizer.decode)
        self._stops = StopTexts(stop_texts)
        self._reasoning = ReasoningSplit(splits_reasoning, begins_in_thought)
        self._length = 0  # characters that came out of the detokenizer
        self._num_given = 0  # those of them that were given out, or left out as a tag is
        self._num_kept_back = 0  # of the content: may become a stop text, or is behind where one began
        self._waiting: deque[Likelihood] = deque()

    @property
    def is_stopped(self) -> bool:
        return self._stops.found is not None

    def push(self, token_id: int, detail: TokenDetail | None = None) -> Delta:
        """What is certain now; an empty piece where that is nothing."""
        if detail is not None and detail.logprob is not None and token_id not in self._eos_token_ids:
            self._waiting.append(self._likelihood(detail, detail.logprob))
        return self._piece(self._detokenizer.push(token_id), is_last=False)

    def finish(self) -> Delta:
        """The rest, once no token follows."""
        return self._piece("" if self.is_stopped else self._detokenizer.flush(), is_last=True)

    def _piece(self, text: str, *, is_last: bool) -> Delta:
        self._length += len(text)
        reasoning, answer = self._reasoning.push(text)
        if is_last:
            rest = self._reasoning.flush()
            reasoning, answer = reasoning + rest[0], answer + rest[1]
        content = self._stops.push(answer)
        if is_last:
            content += self._stops.flush()
        self._num_kept_back += len(answer) - len(content)
        self._num_given = self._length - self._reasoning.num_held - self._num_kept_back
        return Delta(content, reasoning, tuple(self._begun(is_last=is_last)))

    def _begun(self, *, is_last: bool) -> Iterable[Likelihood]:
        """The tokens that begin in what was given out; at the end those too that have no text of their own."""
        keeps_textless = is_last and not self.is_stopped
        while self._waiting and (self._waiting[0].offset < self._num_given or keeps_textless):
            yield self._waiting.popleft()

    def _likelihood(self, detail: TokenDetail, logprob: float) -> Likelihood:
        likeliest = tuple(
            (self._texts.text(token_id), self._texts.bytes(token_id), top_logprob)
            for token_id, top_logprob in detail.top_logprobs.items()
        )
        own = detail.token_id
        return Likelihood(self._texts.text(own), self._texts.bytes(own), logprob, self._length, likeliest)
