"""The text of an answer as its tokens come: whole characters, without stop texts, thoughts and calls apart."""

from collections import deque
from collections.abc import Iterable

from kakeya import TokenDetail
from kakeya.text.detokenizer import Detokenizer
from kakeya_http_shim.text.answer_form import AnswerForm
from kakeya_http_shim.text.delta import Delta, Likelihood
from kakeya_http_shim.text.stop_texts import StopTexts
from kakeya_http_shim.text.token_texts import TokenTexts
from kakeya_http_shim.tools.deltas import Content, merged
from kakeya_http_shim.tools.deltas import Delta as Part


class AnswerText:
    """Tokens in, pieces of text out.

    Args:
        form: what its text is told apart into.
        stop_texts: looked for in content and calls; thoughts that are told apart may hold them.
        min_tokens: stop texts are looked for behind so many tokens.
        stop_token_ids: tokens that may end the answer; the one that does is no part of it.
        offset: characters before the answer that offsets count, too.
        tells_end: how likely the token was that ended the answer is told, too.

    Attributes:
        is_stopped: a stop text was found, or all calls were made that may be; what follows is none of the answer.
        num_reasoning_tokens: tokens of the thoughts, up to the one that ended them.
    """

    def __init__(
        self,
        form: AnswerForm,
        stop_texts: tuple[str, ...],
        *,
        min_tokens: int = 0,
        stop_token_ids: frozenset[int] = frozenset(),
        offset: int = 0,
        tells_end: bool = False,
    ) -> None:
        self._texts = TokenTexts(form.tokenizer)
        self._untold = frozenset() if tells_end else frozenset(form.tokenizer.eos_token_ids)
        self._detokenizer = Detokenizer(form.decode)
        self._stops = StopTexts(stop_texts)
        self._reasoning = form.reasoning()
        self._calls = form.parser()
        self._length = 0  # characters that came out of the detokenizer
        self._num_given = 0  # those of them that were given out, or left out as a tag is
        self._num_kept_back = 0  # of the content: may become a stop text, or is behind where one began
        self._waiting: deque[Likelihood] = deque()
        self._min_tokens = min_tokens
        self._stop_token_ids = stop_token_ids
        self._offset = offset
        self._held: tuple[int, TokenDetail | None] | None = None  # it ends the answer, unless another one follows
        self._num_tokens = 0
        self.num_reasoning_tokens = 0

    @property
    def is_stopped(self) -> bool:
        return self._stops.found is not None or (self._calls is not None and self._calls.is_over)

    @property
    def stop_text(self) -> str | None:
        """That was found."""
        return self._stops.found

    def push(self, token_id: int, detail: TokenDetail | None = None) -> Delta:
        """What is certain now; an empty piece where that is nothing."""
        text = self._taken_up() if self._held else ""
        if token_id in self._stop_token_ids:
            self._held = token_id, detail
        else:
            text += self._said(token_id, detail)
        self._num_tokens += 1
        return self._piece(text, is_last=False)

    def finish(self, *, at_stop_token: bool = False) -> Delta:
        """The rest, once no token follows.

        Args:
            at_stop_token: the last one was a stop token that ended the answer.
        """
        if self.is_stopped:
            return self._piece("", is_last=True)
        text = self._taken_up() if self._held and not at_stop_token else ""
        rest = self._detokenizer.flush()
        self._length += len(rest)
        return self._piece(text + rest, is_last=True)

    def _taken_up(self) -> str:
        """Of the token that was held back."""
        held, self._held = self._held, None
        return self._said(*held) if held else ""

    def _said(self, token_id: int, detail: TokenDetail | None) -> str:
        if detail is not None and detail.logprob is not None and token_id not in self._untold:
            self._waiting.append(likelihood(self._texts, token_id, detail, self._offset + self._length))
        text = self._detokenizer.push(token_id)
        self._length += len(text)
        return text

    def _piece(self, text: str, *, is_last: bool) -> Delta:
        was_within = self._reasoning.is_within
        reasoning, answer = self._reasoning.push(text)
        if (was_within or self._reasoning.is_within) and not is_last:
            self.num_reasoning_tokens = self._num_tokens
        if is_last:
            rest = self._reasoning.flush()
            reasoning, answer = reasoning + rest[0], answer + rest[1]
        content = self._stops.push(answer) if self._num_tokens > self._min_tokens else answer
        if is_last:
            content += self._stops.flush()
        self._num_kept_back += len(answer) - len(content)
        self._num_given = self._length - self._reasoning.num_held - self._num_kept_back
        parts = self._parts(content, is_last=is_last)
        return Delta(parts, reasoning, tuple(self._begun(is_last=is_last)), self._num_tokens)

    def _parts(self, content: str, *, is_last: bool) -> tuple[Part, ...]:
        if self._calls is None:
            return (Content(content),) if content else ()
        parts = self._calls.push(content)
        return merged([*parts, *self._calls.finish()]) if is_last else tuple(parts)

    def _begun(self, *, is_last: bool) -> Iterable[Likelihood]:
        """The tokens that begin in what was given out; at the end those too that have no text of their own."""
        keeps_textless = is_last and not self.is_stopped
        while self._waiting and (self._waiting[0].offset < self._offset + self._num_given or keeps_textless):
            yield self._waiting.popleft()


def likelihood(texts: TokenTexts, token_id: int, detail: TokenDetail | None, offset: int) -> Likelihood:
    """Of a token with so many characters before it; without a detail nothing is known of it."""
    text, data = texts.text(token_id), texts.bytes(token_id)
    if detail is None or detail.logprob is None:
        return Likelihood(text, data, 0.0, offset, (), has_logprob=False)
    likeliest = tuple((texts.text(top), texts.bytes(top), logprob) for top, logprob in detail.top_logprobs.items())
    return Likelihood(text, data, detail.logprob, offset, likeliest)
