"""An answer's calls of tools told apart from its text, as the text comes."""

import re
from collections.abc import Callable

from kakeya_http_shim.tools.deltas import (
    NUM_ID_LETTERS,
    ArgumentText,
    CallBegun,
    Content,
    Delta,
    Unfinished,
    new_call_id,
)
from kakeya_http_shim.tools.source import Cut, Malformed, Reading, Source
from kakeya_http_shim.tools.syntax import Call, Syntax

_GIVEN_ID = re.compile(f"[A-Za-z0-9]{{{NUM_ID_LETTERS}}}")


class ToolCallParser:
    """Text in, deltas out. Joined they are the same however the text is cut.

    A call is held back until it is whole, so that none is ever told by half; then its name is told, and its arguments.
    What begins like a call and is none is content, to the last letter. Where the answer ends within a call, that is
    content, too, unless calls were made before or nothing stands behind the mark; then it is told as `Unfinished`.

    Text before, between and behind calls is content as it was written. White space is told as soon as text follows it.
    At the end of the content it is left out where calls were made or begun.

    Args:
        syntax: of the model's family.
        new_id: makes the id of a call where the model gave it none of our form, or one that it gave before.
        only_first: the answer ends with its first call.
    """

    def __init__(self, syntax: Syntax, new_id: Callable[[], str] = new_call_id, *, only_first: bool = False) -> None:
        self._syntax = syntax
        self._source = Source()
        self._told = _Told(new_id, only_first)
        self._is_line_start = True
        firsts = re.escape("".join(sorted({opener[0] for opener in syntax.openers})))
        # Bare letters count at the beginning of a line only, so they and line feeds come one by one.
        single = re.escape(syntax.bare + "\n") if syntax.bare else ""
        self._text = re.compile(f"[^{firsts}{single}]+" + (f"|[{single}]" if single else ""))
        self._reading = self._read()

    @property
    def is_holding(self) -> bool:
        """Whether text is held back that may become a call: a stream has nothing to say meanwhile."""
        return self._source.is_keeping

    @property
    def is_over(self) -> bool:
        """Whether the answer has its only call, and more follows that than what closes it: no more is told."""
        if not self._told.is_full:
            return False
        return self._told.is_over or (self._source.is_keeping and not self._may_close(self._source.kept.strip()))

    def push(self, text: str) -> list[Delta]:
        """What is certain now.

        Raises:
            ValueError: it was finished.
        """
        self._source.feed(text)
        next(self._reading, None)
        return self._told.taken()

    def finish(self) -> list[Delta]:
        """The rest, once no text follows."""
        self._source.complete()
        next(self._reading, None)
        self._told.end()
        return self._told.taken()

    def _read(self) -> Reading[None]:
        while True:
            opener = yield from self._next_opener()
            if opener is None:
                return
            try:
                yield from self._syntax.read(opener, self._source, self._tell)
            except Malformed:
                self._say(self._source.let_go())
            except Cut:
                self._break_off(opener)
            else:
                self._source.let_go()

    def _next_opener(self) -> Reading[str | None]:
        """What opens a call, kept; empty before a bare letter, None at the end. What comes before is told."""
        while letter := (yield from self._source.peek()):
            if letter in self._syntax.bare and self._is_line_start:
                self._source.keep()
                return ""
            text = self._source.some(self._text)
            if not text:
                self._source.keep()
                text, is_whole = yield from self._source.one_of(self._syntax.openers)
                if is_whole:
                    return text
                self._source.let_go()
            self._say(text)
        return None

    def _may_close(self, text: str) -> bool:
        return not text or any(closer.startswith(text) for closer in self._syntax.closers)

    def _say(self, text: str) -> None:
        """Some letters of a bare opener's were taken at least, so it does not begin again where it began."""
        line = text.rpartition("\n")[2]
        self._is_line_start = (self._is_line_start or len(line) < len(text)) and not line.strip()
        self._told.text(text)

    def _tell(self, call: Call) -> None:
        self._told.call(call)
        self._source.keep()
        self._is_line_start = True

    def _break_off(self, opener: str) -> None:
        text = self._source.let_go()
        if opener and (self._told.num_calls or text.strip() == opener):
            self._told.unfinished(text)
        else:
            self._say(text)


class _Told:
    """What was told, and the white space that waits for text.

    Args:
        only_first: nothing is told behind the first call.

    Attributes:
        is_over: something was left out for that.
    """

    def __init__(self, new_id: Callable[[], str], only_first: bool) -> None:
        self._new_id = new_id
        self._only_first = only_first
        self.is_over = False
        self._ids: set[str] = set()
        self._deltas: list[Delta] = []
        self._text: list[str] = []
        self._blank: list[str] = []
        self._is_unfinished = False

    @property
    def num_calls(self) -> int:
        return len(self._ids)

    @property
    def is_full(self) -> bool:
        """Nothing more is told."""
        return self._only_first and bool(self._ids)

    def taken(self) -> list[Delta]:
        self._end_text()
        deltas, self._deltas = self._deltas, []
        return deltas

    def text(self, text: str) -> None:
        solid = text.rstrip()
        if self.is_full:
            self.is_over = self.is_over or bool(solid)
            return
        if solid:
            self._text += [*self._blank, solid]
            self._blank = []
        if len(solid) < len(text):
            self._blank.append(text[len(solid) :])

    def call(self, call: Call) -> None:
        if self.is_full:
            self.is_over = True
            return
        self._end_text()
        index = len(self._ids)
        is_ours = call.id is not None and _GIVEN_ID.fullmatch(call.id) and call.id not in self._ids
        id_ = call.id if is_ours and call.id else self._fresh()
        self._ids.add(id_)
        self._deltas += [CallBegun(index, id_, call.name), ArgumentText(index, call.arguments)]

    def unfinished(self, text: str) -> None:
        if self.is_full:
            self.is_over = True
            return
        self._end_text()
        self._is_unfinished = True
        self._deltas.append(Unfinished(text))

    def end(self) -> None:
        if not self._ids and not self._is_unfinished:
            self._text += self._blank
        self._blank = []

    def _fresh(self) -> str:
        """Another than those that were given: a model may have written it."""
        while (new := self._new_id()) in self._ids:
            pass
        return new

    def _end_text(self) -> None:
        text = "".join(self._text)
        self._text = []
        if text:
            self._deltas.append(Content(text))
