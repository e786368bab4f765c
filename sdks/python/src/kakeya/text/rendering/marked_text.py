"""Texts whose letters can be told, after a template has written them, from those of the template itself.

A template is a program: it trims a text, cuts it at `</think>`, puts it in capitals, adds it to others, writes it as
JSON. So the mark is in each letter: one that could be part of a control token is exchanged for a stand-in, and from the
stand-in the letter is known. Whatever is done to a text, its letters remain marked, and what a template writes itself
is not. Stand-ins are halves of characters (surrogates): a prompt that holds one is refused, so none is ever meant.

What a template asks of a marked text is answered as of the text that it stands for.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, SupportsIndex

_FIRST_STAND_IN, _NUM_STAND_INS = 0xD800, 0x800


class StandIns:
    """Letters that are exchanged, each with its stand-in. Its methods may be called from several threads at once.

    Args:
        letters: the most important first; those for which no stand-in is left are not exchanged.
    """

    def __init__(self, letters: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._stand_ins: dict[int, int] = {}
        self._letters: dict[int, int] = {}
        self.add(letters)
        self.text_type: type[MarkedText] = type("MarkedText", (MarkedText,), {"_stand_ins": self, "__slots__": ()})

    def __contains__(self, letter: str) -> bool:
        return ord(letter) in self._stand_ins

    def add(self, letters: Iterable[str]) -> bool:
        """Exchanges these, too, from now on; False where there are too many."""
        with self._lock:
            for letter in letters:
                if letter not in self:
                    if len(self._stand_ins) == _NUM_STAND_INS:
                        return False
                    stand_in = _FIRST_STAND_IN + len(self._stand_ins)
                    self._letters[stand_in] = ord(letter)
                    self._stand_ins[ord(letter)] = stand_in
        return True

    def mark(self, text: str) -> str:
        """The text with stand-ins."""
        return bare(text).translate(self._stand_ins)

    def unmark(self, marked: str) -> str:
        """The text that it stands for."""
        return bare(marked).translate(self._letters)

    def masked(self, marked: str, letter: str) -> str:
        """With this letter for each stand-in."""
        return bare(marked).translate(dict.fromkeys(self._letters, letter))

    def escaped(self, marked: str) -> str:
        """With letters that are not ASCII as JSON escapes them."""
        return "".join(letter if letter.isascii() else self._escape(letter) for letter in bare(marked))

    def _escape(self, letter: str) -> str:
        read = self.unmark(letter)
        if read.isascii():
            return letter
        escape = json.dumps(read)[1:-1]
        return escape if read == letter else self.mark(escape)

    def rewrap(self, text: str) -> str:
        """One that behaves as the text that it stands for, if it holds stand-ins."""
        return self.text_type(text) if has_stand_ins(text) else text


def has_stand_ins(text: str) -> bool:
    """Whether any letter is one; also halves of characters that are none are."""
    if str.isascii(text):
        return False
    try:
        str.encode(text)
    except UnicodeEncodeError:
        return True
    return False


def bare(text: str) -> str:
    """The letters of a text as they are, stand-ins among them."""
    return str.__str__(text)


class MarkedText(str):
    """A text with stand-ins that behaves as the one that it stands for; what is made of it is marked where it was.

    Templates see it: what is not a text's has a name with an underscore in front, which the sandbox keeps from them.
    """

    __slots__ = ("_read",)
    _stand_ins: ClassVar[StandIns]
    _read: str

    @property
    def _meant(self) -> str:
        """The text that it stands for."""
        try:
            return self._read
        except AttributeError:
            self._read = self._stand_ins.unmark(self)
            return self._read

    def _cut(self, pieces: Iterable[str], gap: int = 0) -> list[str]:
        """As these pieces are cut from what is meant, one after another with so many letters between them."""
        cut, start = [], 0
        for piece in pieces:
            cut.append(self[start : start + len(piece)])
            start += len(piece) + gap
        return cut

    def __getitem__(self, place: SupportsIndex | slice) -> str:
        return type(self)(str.__getitem__(self, place))

    def __iter__(self) -> Iterator[str]:
        return map(type(self), bare(self))

    def __add__(self, other: str) -> str:
        return type(self)(str.__add__(self, other))

    def __radd__(self, other: str) -> str:
        return type(self)(other + bare(self))

    def __str__(self) -> str:
        return self

    def __repr__(self) -> str:
        return self._stand_ins.mark(repr(self._meant))

    def __int__(self) -> int:
        return int(self._meant)

    def __float__(self) -> float:
        return float(self._meant)

    def __hash__(self) -> int:
        return hash(self._meant)

    def strip(self, chars: str | None = None) -> str:
        """As of a text."""
        return self[self._num_left(chars) :].rstrip(chars)

    def lstrip(self, chars: str | None = None) -> str:
        """As of a text."""
        return self[self._num_left(chars) :]

    def rstrip(self, chars: str | None = None) -> str:
        """As of a text."""
        return self[: len(self._meant.rstrip(meant(chars)))]

    def _num_left(self, chars: str | None) -> int:
        return len(self) - len(self._meant.lstrip(meant(chars)))

    def removeprefix(self, prefix: str) -> str:
        """As of a text."""
        return self[len(self) - len(self._meant.removeprefix(meant(prefix))) :]

    def removesuffix(self, suffix: str) -> str:
        """As of a text."""
        return self[: len(self._meant.removesuffix(meant(suffix)))]

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As of a text."""
        pieces = self._meant.split(meant(sep), maxsplit)
        return self._found(pieces) if sep is None else self._cut(pieces, len(sep))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        """As of a text."""
        pieces = self._meant.rsplit(meant(sep), maxsplit)
        return self._found(pieces) if sep is None else self._cut(pieces, len(sep))

    def _found(self, pieces: list[str]) -> list[str]:
        """Pieces with blanks between them."""
        cut, start = [], 0
        for piece in pieces:
            start = self._meant.index(piece, start)
            cut.append(self[start : start + len(piece)])
            start += len(piece)
        return cut

    def splitlines(self, keepends: bool = False) -> list[str]:
        """As of a text."""
        lines = self._cut(self._meant.splitlines(keepends=True))
        return lines if keepends else [line[: len(meant(line).splitlines()[0])] for line in lines]

    def partition(self, sep: str) -> tuple[str, str, str]:
        """As of a text."""
        before, found, after = self._cut(self._meant.partition(meant(sep)))
        return before, found, after

    def rpartition(self, sep: str) -> tuple[str, str, str]:
        """As of a text."""
        before, found, after = self._cut(self._meant.rpartition(meant(sep)))
        return before, found, after

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> str:
        """As of a text; what is put in is marked where it is so itself."""
        marked, start = bare(self), 0
        kept: list[str] = []
        for length in self._lengths_between(meant(old), int(count)):
            kept.append(marked[start : start + length])
            start += length + len(old)
        return type(self)(bare(new).join(kept))

    def _lengths_between(self, old: str, count: int) -> list[int]:
        """Of the pieces that stand before, between and behind what is replaced."""
        if old:
            return list(map(len, self._meant.split(old, count)))
        times = len(self) + 1 if count < 0 else min(count, len(self) + 1)
        return [0, *[1] * (times - 1), len(self) - times + 1] if times else [len(self)]


def meant(text: Any) -> Any:
    """The text that is meant, of one that may be marked; what is none stays as it is."""
    return text._meant if isinstance(text, MarkedText) else text


def _answering(name: str) -> Any:
    """A method that says something of a text."""
    method = getattr(str, name)

    def answer(self: MarkedText, *args: Any) -> Any:
        return method(self._meant, *map(_each_meant, args))

    return answer


def _each_meant(value: Any) -> Any:
    return tuple(map(meant, value)) if isinstance(value, tuple) else meant(value)


def _changing(name: str) -> Any:
    """A method that exchanges letters."""
    method = getattr(str, name)

    def change(self: MarkedText) -> str:
        changed = method(self._meant)
        marked = self._stand_ins.mark(changed)
        if len(changed) != len(self):  # some letters become two; which ones were marked is no longer known
            return type(self)(marked)
        letters = zip(bare(self), self._meant, marked, changed, strict=True)
        return type(self)("".join(new if old != read else plain for old, read, new, plain in letters))

    return change


_ANSWERS = (
    "__contains__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ startswith endswith find rfind index rindex count isalnum "
    "isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper"
)
for _name in _ANSWERS.split():
    setattr(MarkedText, _name, _answering(_name))
for _name in ("upper", "lower", "capitalize", "title", "swapcase", "casefold"):
    setattr(MarkedText, _name, _changing(_name))
