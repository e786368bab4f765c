"""The prompt as part of the answer: its text and, where asked for, how likely each of its tokens was."""

from collections.abc import Iterator, Sequence

from kakeya import TokenDetail
from kakeya.text.detokenizer import Detokenizer
from kakeya_http_shim.models.model_tokenizer import ModelTokenizer
from kakeya_http_shim.models.prompt import Prompt
from kakeya_http_shim.text.answer_text import likelihood
from kakeya_http_shim.text.delta import Delta, Likelihood
from kakeya_http_shim.text.token_texts import TokenTexts


def echoed(prompt: Prompt, tokenizer: ModelTokenizer, details: Sequence[TokenDetail] | None) -> Delta:
    """The prompt as a piece of the answer. Of a long one it takes seconds: not on the event loop.

    Args:
        details: of its tokens but the first, which nothing precedes; None where they are not wanted.
    """
    written = _text(tokenizer, prompt.token_ids)
    text = written if prompt.text is None else prompt.text
    if details is None:
        return Delta.saying(text)
    # A tokenizer may put special tokens before a text, which are not part of it.
    num_before = len(written) - len(text) if written.endswith(text) else 0
    return Delta.saying(text, tuple(_likelihoods(prompt.token_ids, tokenizer, details, num_before)))


def _likelihoods(
    token_ids: Sequence[int], tokenizer: ModelTokenizer, details: Sequence[TokenDetail], num_before: int
) -> Iterator[Likelihood]:
    texts = TokenTexts(tokenizer)
    detokenizer = Detokenizer(lambda ids: _text(tokenizer, ids))
    length = 0
    for token_id, detail in zip(token_ids, (None, *details), strict=True):
        yield likelihood(texts, token_id, detail, max(0, length - num_before))
        length += len(detokenizer.push(token_id))


def _text(tokenizer: ModelTokenizer, token_ids: Sequence[int]) -> str:
    return tokenizer.decode(list(token_ids), special_tokens=True)
