"""What can go wrong with a local stack."""


class StackError(Exception):
    """The stack cannot start or go on; the message is one line that says why and, where possible, the cure."""
