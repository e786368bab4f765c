"""Calls as Mistral's models write them: `[TOOL_CALLS] [{...}, ...]`, since 2025 `[TOOL_CALLS]name[ARGS]{...}`."""

import re
from collections.abc import Callable

from kakeya_http_shim.tools.json_calls import read_call
from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call, OfferedTools
from kakeya_http_shim.tools.values import JSON, SPACE, read_value

_OPEN = "[TOOL_CALLS]"
_ARGUMENTS = "[ARGS]"
_ID = "[CALL_ID]"
_NAME = re.compile(r"[\w.\-]+")


class MistralSyntax:
    """Either form, whichever stands behind the mark. Each call of an array is told as soon as it is whole."""

    marks = (_OPEN, _ARGUMENTS, _ID)
    openers = (_OPEN,)
    bare = ""
    closers = ("]",)

    def __init__(self, _tools: OfferedTools) -> None:
        pass

    def read(self, _opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        """See `Syntax`."""
        yield from source.run(SPACE)
        if (yield from source.need()) == "[":
            yield from _read_array(source, tell)
        else:
            tell((yield from _read_named(source)))


def _read_array(source: Source, tell: Callable[[Call], None]) -> Reading[None]:
    closing = source.take()
    while closing != "]":
        yield from source.run(SPACE)
        yield from source.need()
        call = yield from read_call(source)
        yield from source.run(SPACE)
        if (yield from source.peek()) not in {",", "]", ""}:
            raise Malformed
        tell(call)
        if not (yield from source.peek()):
            return
        closing = source.take()


def _read_named(source: Source) -> Reading[Call]:
    name = yield from source.run(_NAME)
    yield from source.need()
    mark, is_whole = yield from source.one_of((_ARGUMENTS, _ID))
    if mark and not is_whole:
        yield from source.need()
        raise Malformed
    given_id = None
    if mark == _ID:
        given_id = yield from source.run(_NAME)
        yield from source.expect(_ARGUMENTS)
    yield from source.run(SPACE)
    if (yield from source.need()) != "{" or not name:
        raise Malformed
    return Call(name, (yield from read_value(source, JSON)), given_id)
