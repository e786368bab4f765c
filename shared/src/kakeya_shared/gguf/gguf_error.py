"""What goes wrong with a GGUF file."""


class GgufError(ValueError):
    """A file is no GGUF file, is damaged, or holds what cannot be used here; the message says which and why."""
