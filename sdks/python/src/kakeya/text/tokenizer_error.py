"""What goes wrong between text and tokens."""


class TokenizerError(Exception):
    """There is no tokenizer to be had, or it cannot do what is asked; the message says what to do."""


class PromptTooLong(TokenizerError):
    """A text has more tokens than were allowed."""
