"""Text from tokens as they come, in whole characters."""

from collections.abc import Callable

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what decoders make of half a character


class Detokenizer:
    """Gives out text once its last character is whole.

    A decoder looks at a token's neighbours (spaces, bytes of one character), so each token is decoded together
    with the ones since the last whole character and, as context, the ones before that.

    Args:
        decode: text of a list of token ids.
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._token_ids: list[int] = []
        self._num_context = 0  # how many of these were given out entirely
        self._num_given = 0  # characters of their text that were given out

    def push(self, token_id: int) -> str:
        """The text that is certain now; "" in the middle of a character."""
        self._token_ids.append(token_id)
        text = self._decode(self._token_ids)
        whole = text.rstrip(_REPLACEMENT)
        new = whole[self._num_given :]
        self._num_given = max(self._num_given, len(whole))
        if new and whole == text:
            self._token_ids = self._token_ids[self._num_context :]
            self._num_context = len(self._token_ids)
            self._num_given = len(self._decode(self._token_ids))
        return new

    def flush(self) -> str:
        """What is left: replacement characters, if the tokens ended within a character."""
        return self._decode(self._token_ids)[self._num_given :]
