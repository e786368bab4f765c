"""The text of one argument between tags, where the text may hold such tags, too."""

import re

from kakeya_http_shim.tools.source import Reading, Source
from kakeya_http_shim.tools.values import SPACE

FUNCTION = "<function="
PARAMETER = "<parameter="
FUNCTION_CLOSE = "</function>"
CALL_CLOSE = "</tool_call>"
NAME = re.compile(r"[^<>\s]+")
_CLOSE = "</parameter>"
_TAGS = (_CLOSE, FUNCTION_CLOSE, FUNCTION, PARAMETER, CALL_CLOSE)
_TEXT = re.compile("[^<]+")


class ParameterText:
    """Reads behind `<parameter=key>` up to what ends the argument, which is taken.

    `</parameter>` ends it before another tag that can follow it. Of a text that has lines of its own, either must begin
    one. Such a text is also ended by `<parameter=key>` on a line of its own, with a key that was not given yet, and by
    `</function>` on a line before `</tool_call>`: models forget `</parameter>`. All else is text.

    A text with lines may show such calls itself. So nothing ends it between `<function=name>` and `</function>` where
    each begins a line but for white space. A text that shows only the first of the two never ends, and is no call: that
    does less harm than half of a text would.

    Args:
        missing: the keys that can follow.

    Attributes:
        value: without the line feeds behind the first tag and before the last one.
        next_name: the key of the argument that follows; None behind the last.
        is_call_closed: `</tool_call>` was taken, too.
    """

    def __init__(self, source: Source, missing: frozenset[str]) -> None:
        self._source = source
        self._missing = missing
        self._pieces: list[str] = []
        self._last = ""  # letter, of the text or before it
        self._is_line_blank = False  # the last one so far
        self._num_shown = 0  # functions that are open within the text
        self._has_lines = False
        self.next_name: str | None = None
        self.is_call_closed = False

    @property
    def value(self) -> str:
        text = "".join(self._pieces)
        return text.removesuffix("\n") if self._has_lines else text

    def read(self) -> Reading[None]:
        """To the end of the argument.

        Raises:
            Cut: the text ends before.
        """
        self._has_lines = (yield from self._source.need()) == "\n"
        if self._has_lines:
            self._last = self._source.take()
            self._is_line_blank = True
        tag: str | None = None
        while True:
            if not tag:
                self._add((yield from self._source.run(_TEXT)))
                tag = yield from self._tag_or_text()
            elif (yield from self._is_end(tag)):
                return
            else:
                tag = self._unread
                self._unread = None

    _unread: str | None = None
    """A tag that was taken while it was looked at what follows another one."""

    def _add(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            self._last = text[-1]
            line = text.rpartition("\n")[2]
            self._is_line_blank = (self._is_line_blank or len(line) < len(text)) and not line.strip()

    def _tag_or_text(self) -> Reading[str | None]:
        """The tag that follows; None where it is none, which is text then."""
        yield from self._source.need()
        piece, is_whole = yield from self._source.one_of(_TAGS)
        if is_whole:
            return piece
        self._add(piece)
        return None

    def _is_end(self, tag: str) -> Reading[bool]:
        if tag == FUNCTION:
            yield from self._show()
            return False
        begins_line = self._last == "\n"
        if tag == PARAMETER:
            return (yield from self._is_next(begins_line))
        is_shown = self._num_shown > 0
        self._num_shown -= is_shown and tag == FUNCTION_CLOSE and self._is_line_blank
        if is_shown or tag == CALL_CLOSE or (tag == FUNCTION_CLOSE and not (self._has_lines and begins_line)):
            self._add(tag)
            return False
        space = yield from self._source.run(SPACE)
        yield from self._source.need()
        behind, is_whole = yield from self._source.one_of(_TAGS)
        if tag == FUNCTION_CLOSE and behind == CALL_CLOSE:
            self.is_call_closed = True
            return True
        if tag == _CLOSE and (begins_line or not self._has_lines or "\n" in space):
            if behind == FUNCTION_CLOSE:
                return True
            if behind == PARAMETER:
                name = yield from self._source.run(NAME)
                if (yield from self._source.need()) == ">" and name:
                    self._source.take()
                    self.next_name = name
                    return True
                behind, is_whole = behind + name, False
        self._add(tag + space)
        if is_whole:
            self._unread = behind
        else:
            self._add(behind)
        return False

    def _show(self) -> Reading[None]:
        name = yield from self._source.run(NAME)
        is_whole = (yield from self._source.need()) == ">" and name != ""
        self._num_shown += self._has_lines and self._is_line_blank and is_whole
        self._add(FUNCTION + name)

    def _is_next(self, begins_line: bool) -> Reading[bool]:
        """Whether `<parameter=` ends the argument by itself."""
        name = yield from self._source.run(NAME)
        self._add(PARAMETER + name)
        if self._num_shown or not (self._has_lines and begins_line and name in self._missing):
            return False
        for expected in ">\n":
            if (yield from self._source.need()) != expected:
                return False
            if expected == ">":
                self._add(self._source.take())
        self._pieces = self._pieces[:-2]
        self.next_name = name
        return True
