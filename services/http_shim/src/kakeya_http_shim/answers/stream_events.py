"""Server-sent events, as they are on the wire."""


def framed(data: bytes, name: str = "") -> bytes:
    """One event.

    Args:
        data: one line.
        name: of the event; "" of one that has none.
    """
    line = b"data: " + data + b"\n\n"
    return b"event: " + name.encode() + b"\n" + line if name else line
