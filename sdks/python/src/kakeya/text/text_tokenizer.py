"""A tokenizer as the library tokenizers runs it, with what the files beside it say."""

from pathlib import Path
from typing import TYPE_CHECKING

from kakeya.text.control_tokens import ControlTokens
from kakeya.text.text_encoder import TextEncoder
from kakeya.text.tokenizer_config import TokenizerConfig
from kakeya.text.tokenizer_error import PromptTooLong

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE_LETTERS = 1 << 16
_CUT_TOKENS = 64  # far more than a cut in the middle of a text adds to its tokens
_LETTERS_A_TOKEN = 4  # a text with fewer is encoded at once, whatever it comes to
# In English, blanks that some tokenizers put in front of what follows; the order matters.
_CLEANED = (
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
)


class TextTokenizer:
    """Texts into ids and back. Its methods may be called from several threads at once.

    Args:
        backend: changed here: it cuts and pads nothing, and knows all added tokens.

    Attributes:
        backend: as above.
        config: what the files beside it say.
        control: its control tokens.
        encoder: makes ids of texts.
        eos_token_id: None where no token is said to end a text, or it is none of the vocabulary's.
        num_token_ids: ids that it may make of a text are below this.
    """

    def __init__(self, backend: "Tokenizer", config: TokenizerConfig) -> None:
        # Never set again: the library says "Already borrowed" to who sets them while another thread encodes.
        backend.no_truncation()
        backend.no_padding()
        known = {token.content for token in backend.get_added_tokens_decoder().values()}
        backend.add_tokens([token for token in config.added_tokens if token.content not in known])
        self.backend = backend
        self.config = config
        self.control = ControlTokens(backend)
        self.encoder = TextEncoder(backend, self.control)
        eos = config.special_tokens.get("eos_token")
        self.eos_token_id: int | None = None if eos is None else backend.token_to_id(eos)
        last_added = max(backend.get_added_tokens_decoder(), default=-1)
        self.num_token_ids: int = max(backend.get_vocab_size(with_added_tokens=True), last_added + 1)
        is_bpe = type(backend.model).__name__ == "BPE"
        self._cleans_up = config.cleans_up and (config.cleans_up_bpe or not is_bpe)

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """A text whose control tokens are such.

        Args:
            special_tokens: with those that the tokenizer puts around a text.
        """
        return self.encoder.parsed(text, special_tokens=special_tokens)

    def check_length(self, text: str, max_tokens: int | None) -> None:
        """Raises PromptTooLong where the beginning of a long text has more tokens already."""
        if max_tokens is not None and self._is_surely_longer(text, max_tokens):
            raise _too_long(max_tokens)

    def _is_surely_longer(self, text: str, max_tokens: int) -> bool:
        """Told from the beginning of a long text, in pieces: a book as a whole takes seconds, and a gigabyte."""
        if len(text) <= max(_PIECE_LETTERS, _LETTERS_A_TOKEN * max_tokens):
            return False
        num_tokens = 0
        for start in range(0, len(text), _PIECE_LETTERS):
            piece = self.encode(text[start : start + _PIECE_LETTERS])
            num_tokens += max(0, len(piece) - _CUT_TOKENS)
            if num_tokens > max_tokens:
                return True
        return False

    def decode(self, token_ids: list[int], *, special_tokens: bool = False) -> str:
        """Text; with special tokens only where they are asked for."""
        text: str = self.backend.decode(token_ids, skip_special_tokens=not special_tokens)
        for blank, clean in _CLEANED if self._cleans_up else ():
            text = text.replace(blank, clean)
        return text


def no_longer(token_ids: list[int], max_tokens: int | None) -> list[int]:
    """The same tokens. Raises PromptTooLong where they are more."""
    if max_tokens is not None and len(token_ids) > max_tokens:
        raise _too_long(max_tokens)
    return token_ids


def _too_long(max_tokens: int) -> PromptTooLong:
    return PromptTooLong(f"the prompt has more than {max_tokens:,} tokens")


def load(directory: Path) -> TextTokenizer:
    """That of a directory with tokenizer.json.

    Raises:
        TokenizerError, OSError, ValueError, TypeError: a file of it is broken; and what the library raises.
    """
    from tokenizers import Tokenizer

    config = TokenizerConfig.load(directory)
    return TextTokenizer(Tokenizer.from_file(str(directory / "tokenizer.json")), config)
