"""Server-sent events (WHATWG HTML, chapter 9.2), as far as streams of completions use them."""

import re
from collections.abc import Iterator

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Events:
    """Bytes in, the data of whole events out; bytes may be split anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._is_after_return = False

    def feed(self, received: bytes) -> Iterator[bytes]:
        """The data of events that end in what was received."""
        if not received:
            return
        if self._is_after_return:
            received = received.removeprefix(b"\n")  # the second half of a line's end
        self._is_after_return = received.endswith(b"\r")
        *lines, self._rest = _LINE_END.split(self._rest + received)
        for line in lines:
            yield from self._line(line)

    def _line(self, line: bytes) -> Iterator[bytes]:
        if not line:
            data, self._data = self._data, []
            if data:
                yield b"\n".join(data)
            return
        # Comments have no name before the colon; ids, names and retries of events mean nothing here.
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
