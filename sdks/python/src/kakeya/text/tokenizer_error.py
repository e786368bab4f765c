"""What goes wrong between text and tokens."""


class TokenizerError(Exception):
    """There is no such tokenizer, or it cannot do what is asked; the message says what to do."""


class PromptRefused(TokenizerError):
    """The fault is with what should be said, not with the tokenizer: another prompt may be taken."""


class PromptTooLong(PromptRefused):
    """A text has more tokens than were allowed."""


class TemplateStopped(TokenizerError):
    """The chat template did not come to its end within its bounds of time and size.

    Attributes:
        reason: which bound it went beyond.
        by_time: with more time it might have come to its end.
    """

    def __init__(self, name: str, reason: str, *, by_time: bool) -> None:
        super().__init__(f"the chat template of {name} was stopped: {reason}")
        self.reason = reason
        self.by_time = by_time
