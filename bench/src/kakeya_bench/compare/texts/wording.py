"""Messages of chats from drawn tokens, and how many tokens a chat template makes of what is new in a turn."""

from collections.abc import Sequence

from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError

Message = dict[str, str]

_MARK = "kakeya-bench-marks-an-answer"
"""In the place of an answer: what the template writes behind it is what a turn adds."""


class Wording:
    """Of one model's tokenizer and chat template.

    It counts by rendering a turn behind one short answer, and asks nothing of the code that finds out what a live
    session has to append.

    Raises:
        TokenizerError: there is none, or its chat template does not write what was answered.
    """

    def __init__(self, tokenizer: str) -> None:
        self._tokenizer = ChatTokenizer(tokenizer)
        self._num_around = self.num_new("-", is_first=False) - len(self._encoded("-"))

    def text(self, token_ids: Sequence[int]) -> str:
        """What tokens say, without those that were added to the vocabulary: in a message, such are no tokens."""
        return self._tokenizer.decode(self._plain(token_ids))

    def message(self, token_ids: Sequence[int]) -> Message:
        """What a user says.

        It is made of the first tokens, so that with what the chat template writes around it it is about as long as all
        of them.
        """
        return said(self.text(self._plain(token_ids)[: max(1, len(token_ids) - self._num_around)]))

    def num_new(self, text: str, *, is_first: bool) -> int:
        """Tokens that a turn with this message adds to a conversation, up to and with the beginning of its answer.

        The token that ends the answer before it is among them: of an answer of a given length it was never said.
        """
        if is_first:
            return len(self._tokenizer.prompt([said(text)]))
        rendered = self._tokenizer.render([said("-"), answered(_MARK), said(text)])
        _, mark, behind = rendered.rpartition(_MARK)
        if not mark:
            raise TokenizerError(f"the chat template of {self._tokenizer.name} does not write what was answered")
        return len(self._encoded(behind))

    def _plain(self, token_ids: Sequence[int]) -> list[int]:
        return [token_id for token_id in token_ids if not self._tokenizer.vocabulary.is_added(token_id)]

    def _encoded(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special_tokens=False)


def said(text: str) -> Message:
    """By the user."""
    return {"role": "user", "content": text}


def answered(text: str) -> Message:
    """By the model."""
    return {"role": "assistant", "content": text}
