"""Calls as Hermes and Qwen write them: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

from collections.abc import Callable

from kakeya_http_shim.tools.json_calls import read_call
from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call, OfferedTools
from kakeya_http_shim.tools.values import SPACE

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


class HermesSyntax:
    """A JSON object between tags. Before another call or the end a whole one counts without the closing tag."""

    marks = (_OPEN, _CLOSE)
    openers = (_OPEN,)
    bare = ""
    closers: tuple[str, ...] = ()

    def __init__(self, _tools: OfferedTools) -> None:
        pass

    def read(self, _opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        """See `Syntax`."""
        while True:
            yield from source.run(SPACE)
            yield from source.need()
            call = yield from read_call(source)
            yield from source.run(SPACE)
            tag, is_whole = yield from source.one_of((_CLOSE, _OPEN))
            if not is_whole and (yield from source.peek()):
                raise Malformed
            tell(call)
            if tag != _OPEN:
                return
            source.keep(tag)
