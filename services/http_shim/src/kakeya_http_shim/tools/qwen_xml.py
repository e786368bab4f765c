"""Calls as Qwen3-Coder and its successors write them: `<function=name>` with a `<parameter=key>` for each argument."""

from collections.abc import Callable

from kakeya_http_shim.tools.argument_types import known_arguments, typed, types_of_argument
from kakeya_http_shim.tools.parameter_text import CALL_CLOSE, FUNCTION, FUNCTION_CLOSE, NAME, PARAMETER, ParameterText
from kakeya_http_shim.tools.source import Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call, OfferedTools
from kakeya_http_shim.tools.values import SPACE, written_object

_OPEN = "<tool_call>"


class QwenXmlSyntax:
    """Texts between tags; the tool's schema says what they are.

    `<tool_call>` may be missing before a tool that was offered, `</tool_call>` everywhere, and `</parameter>` where
    what follows shows it (`ParameterText`).
    """

    marks = (_OPEN, CALL_CLOSE)
    openers = (_OPEN, FUNCTION)
    bare = ""
    closers = (CALL_CLOSE,)

    def __init__(self, tools: OfferedTools) -> None:
        self._tools = tools

    def read(self, opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[None]:
        """See `Syntax`."""
        while True:
            is_closed = yield from self._read_function(opener, source, tell)
            if is_closed:
                return
            yield from source.run(SPACE)
            opener, is_whole = yield from source.one_of((CALL_CLOSE, _OPEN, FUNCTION))
            if opener == CALL_CLOSE:
                return
            if not is_whole:
                # What is left of a tag at the end is no text of the answer's.
                if opener and not (yield from source.peek()):
                    return
                raise Malformed

    def _read_function(self, opener: str, source: Source, tell: Callable[[Call], None]) -> Reading[bool]:
        """Tells the call; whether the tag that closes it was taken, too."""
        if opener == _OPEN:
            yield from source.run(SPACE)
            yield from source.expect(FUNCTION)
        function = yield from source.run(NAME)
        yield from source.expect(">")
        if not function or (opener == FUNCTION and function not in self._tools):
            raise Malformed
        schema = self._tools.schemas.get(function, {})
        given: dict[str, str] = {}
        name, is_closed = (yield from _first_parameter(source)), False
        while name is not None:
            if name in given:
                raise Malformed
            text = ParameterText(source, known_arguments(schema) - given.keys() - {name})
            yield from text.read()
            given[name] = typed(text.value, types_of_argument(name, schema))
            name, is_closed = text.next_name, text.is_call_closed
        tell(Call(function, written_object(given)))
        return is_closed


def _first_parameter(source: Source) -> Reading[str | None]:
    """Its name; None where the function ends."""
    yield from source.run(SPACE)
    yield from source.need()
    tag, is_whole = yield from source.one_of((PARAMETER, FUNCTION_CLOSE))
    if tag == FUNCTION_CLOSE:
        return None
    if not is_whole:
        yield from source.need()
        raise Malformed
    name = yield from source.run(NAME)
    yield from source.expect(">")
    if not name:
        raise Malformed
    return name
