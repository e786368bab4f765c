"""Calls as Llama 3 and 4 write them: JSON objects or a list in Python's notation, with or without a mark."""

from collections.abc import Callable

from kakeya_http_shim.tools.json_calls import CALL_KEYS, read_call
from kakeya_http_shim.tools.pythonic import read_calls
from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call, OfferedTools
from kakeya_http_shim.tools.values import SPACE

_OPEN = "<|python_tag|>"
_START = "<|python_start|>"
_END = "<|python_end|>"


class LlamaSyntax:
    """Behind a mark, or at the beginning of a line: JSON objects (a semicolon may stand between them), or one list.

    Without a mark it is a call only if its tool was offered, it has nothing but what a call has, and nothing but calls
    follows it: JSON and lists may be the answer, too. A list is one whole: none of its calls is told before it ends.
    """

    marks = (_OPEN, _START, _END)
    openers = (_OPEN, _START)
    bare = "{["
    closers: tuple[str, ...] = ()

    def __init__(self, tools: OfferedTools) -> None:
        self._tools = tools

    def read(self, opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        """See `Syntax`."""
        yield from source.run(SPACE)
        if (yield from source.need()) == "[":
            calls = yield from read_calls(source, None if opener else self._tools)
            mark = yield from _mark_behind(source)
            if mark not in {"", _END}:
                raise Malformed
            for call in calls:
                tell(call)
        else:
            yield from self._read_objects(opener, source, tell)

    def _read_objects(self, opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        while True:
            yield from source.need()
            call = yield from read_call(source, None if opener else CALL_KEYS)
            if not opener and call.name not in self._tools:
                raise Malformed
            mark = yield from _mark_behind(source)
            tell(call)
            if mark in {"", _END}:
                return
            source.keep(mark.removeprefix("{"))
            yield from source.run(SPACE)
            if mark == ";" and not (yield from source.peek()):
                return
            opener = mark if mark in self.openers else opener


def _mark_behind(source: Source) -> Reading[str]:
    """What stands behind a call, taken; but for a brace, which stays. Empty at the end.

    Raises:
        Malformed: what may not stand there.
    """
    yield from source.run(SPACE)
    letter = yield from source.peek()
    if letter == "{":
        return letter
    if letter == ";":
        return source.take()
    mark, is_whole = yield from source.one_of((_END, _OPEN, _START))
    if is_whole:
        return mark
    if (yield from source.peek()):
        raise Malformed
    return ""
