"""What goes wrong between text and tokens."""


class TokenizerError(Exception):
    """There is no such tokenizer, or it cannot do what is asked; the message says what to do."""


class PromptRefused(TokenizerError):
    """The fault is with what should be said, not with the tokenizer: another prompt may be taken."""


class PromptTooLong(PromptRefused):
    """A text has more tokens than were allowed."""
