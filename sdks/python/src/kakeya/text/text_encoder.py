"""Texts into ids, where it matters which letters may spell control tokens and which are text whatever they spell."""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kakeya.text.control_tokens import ControlTokens
from kakeya.text.rendering.marked_text import has_stand_ins
from kakeya.text.tokenizer_error import PromptRefused

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


class TextEncoder:
    """Encodes with one tokenizer. Its methods may be called from several threads at once, and let others run meanwhile.

    A text without control tokens is encoded as a whole, so that its ids are the library's. One with them is cut at
    those that the template wrote, and only there: what lies between is encoded as the library does what lies between
    two control tokens, by a tokenizer that shares the vocabulary and has none.
    """

    def __init__(self, backend: "Tokenizer", control: ControlTokens) -> None:
        self._backend = backend
        self._control = control
        added = backend.get_added_tokens_decoder()
        self._others = {id_: token for id_, token in sorted(added.items()) if id_ not in control.contents}
        self._neutral = _letter_of_none([token.content for token in added.values()])

    def parsed(self, text: str, *, special_tokens: bool) -> list[int]:
        """A text whose control tokens are such."""
        # A batch of one: unlike `encode` it lets other threads run meanwhile, which for a book is seconds. The fast one
        # does not say where the tokens stand, and takes four fifths of the time.
        (encoding,) = self._backend.encode_batch_fast([text], add_special_tokens=special_tokens)
        return list(encoding.ids)

    def as_text(self, text: str, *, special_tokens: bool) -> list[int]:
        """A text that holds none, whatever it spells.

        Raises:
            PromptRefused: there is no other way to write what it spells.
        """
        merged = self._merged(list(self._plain_encodings(text, goes_on=False)))
        if not special_tokens:
            return self._real(merged.ids)
        whole = self._backend.post_process(merged, None, True)
        return [
            id_ if is_special else self._real([id_])[0]
            for id_, is_special in zip(whole.ids, whole.special_tokens_mask, strict=True)
        ]

    def marked(self, marked: str, *, goes_on: bool = False) -> list[int]:
        """A text with stand-ins: the letters that they stand for are text, and all others are parsed.

        Args:
            goes_on: it stands behind another text.

        Raises:
            PromptRefused: there is no other way to write what the text spells.
        """
        if not has_stand_ins(marked):
            ids = self.parsed(marked, special_tokens=False)
            if not goes_on or self._is_begun_by(ids, marked):
                return ids
        meant = self._control.stand_ins.unmark(marked)
        (encoding,) = self._backend.encode_batch([meant], add_special_tokens=False)
        places = [(start, end) for _, start, end in self._controls(encoding, meant)]
        begins_in_text = not places or places[0][0] > 0
        if not (goes_on and begins_in_text) and not any(has_stand_ins(marked[start:end]) for start, end in places):
            return list(encoding.ids)
        masked = self._control.stand_ins.masked(marked, self._neutral)
        (encoding,) = self._backend.encode_batch([masked], add_special_tokens=False)
        ids = []
        last = 0
        for id_, start, end in self._controls(encoding, masked):
            ids += [*self._between(meant, last, start, goes_on=goes_on), id_]
            last = end
        return ids + self._between(meant, last, len(meant), goes_on=goes_on)

    def _is_begun_by(self, ids: Sequence[int], text: str) -> bool:
        """Whether a text begins with a control token: it is encoded alike, whatever stands before it."""
        first = self._control.contents.get(ids[0]) if ids else None
        return first is not None and text.startswith(first)

    def _controls(self, encoding: "Encoding", text: str) -> Iterator[tuple[int, int, int]]:
        """The control tokens in it: id, and where its letters begin and end."""
        contents = self._control.contents
        for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if id_ in contents and self._control.is_read(id_, text[start:end]):
                yield id_, start, end

    def _between(self, text: str, start: int, end: int, *, goes_on: bool = False) -> list[int]:
        goes_on = goes_on or start > 0
        encodings = self._plain_encodings(text[start:end], goes_on=goes_on) if start < end else ()
        return self._real([id_ for encoding in encodings for id_ in encoding.ids])

    def _plain_encodings(self, text: str, *, goes_on: bool) -> Iterator["Encoding"]:
        """Some vocabularies lead from a control token's letters to its id; there the text is cut once more."""
        plain = self._going_on if goes_on else self._plain
        (encoding,) = plain.encode_batch([text], add_special_tokens=False)
        spelled = next(self._spelled(encoding, text), None)
        if spelled is None:
            yield encoding
            return
        start, end = spelled
        if end - start < 2:
            raise PromptRefused(f"the tokenizer has no way to write {text[start:end]!r} but as a control token")
        yield from self._plain_encodings(text[: start + 1], goes_on=goes_on)
        yield from self._plain_encodings(text[start + 1 :], goes_on=True)

    def _spelled(self, encoding: "Encoding", text: str) -> Iterator[tuple[int, int]]:
        for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if self._control.is_read(self._real([id_])[0], text[start:end]):
                yield start, end

    def _merged(self, encodings: "Sequence[Encoding]") -> "Encoding":
        from tokenizers import Encoding

        return encodings[0] if len(encodings) == 1 else Encoding.merge(list(encodings), growing_offsets=True)

    @cached_property
    def _plain(self) -> "Tokenizer":
        """Without control tokens."""
        from tokenizers import Tokenizer

        plain = Tokenizer(self._backend.model)  # which both have, not each its own
        if self._backend.normalizer is not None:
            plain.normalizer = self._backend.normalizer
        if self._backend.pre_tokenizer is not None:
            plain.pre_tokenizer = self._backend.pre_tokenizer
        plain.add_tokens(list(self._others.values()))
        return plain

    @cached_property
    def _going_on(self) -> "Tokenizer":
        """For a text behind another: some tokenizers put a blank in front of what is first, and only there."""
        from tokenizers import Tokenizer

        if self._backend.pre_tokenizer is None:
            return self._plain
        form = json.loads(Tokenizer(self._backend.model.__class__()).to_str())
        state = json.loads(self._backend.pre_tokenizer.__getstate__())
        going_on = Tokenizer(self._backend.model)
        if self._backend.normalizer is not None:
            going_on.normalizer = self._backend.normalizer
        going_on.pre_tokenizer = Tokenizer.from_str(
            json.dumps(form | {"pre_tokenizer": _without_first(state)})
        ).pre_tokenizer
        going_on.add_tokens(list(self._others.values()))
        return going_on

    @cached_property
    def _real_ids(self) -> dict[int, int]:
        """Of the added tokens that have another id in the tokenizer without control tokens."""
        ids = {self._plain.token_to_id(token.content): id_ for id_, token in self._others.items()}
        return {plain: id_ for plain, id_ in ids.items() if plain is not None and plain != id_}

    def _real(self, ids: list[int]) -> list[int]:
        return [self._real_ids.get(id_, id_) for id_ in ids] if self._real_ids else ids


def _without_first(state: Any) -> Any:
    """A pre-tokenizer's description, without what it does at the beginning of a text only."""
    if isinstance(state, dict):
        changed = {name: _without_first(value) for name, value in state.items()}
        return changed | {"prepend_scheme": "never"} if state.get("prepend_scheme") == "first" else changed
    return [_without_first(each) for each in state] if isinstance(state, list) else state


def _letter_of_none(contents: list[str]) -> str:
    """One that stands in no added token, neither by itself nor normalized."""
    letters = set("".join(contents).casefold())
    return next(letter for letter in map(chr, range(ord("a"), 0x3000)) if letter.isalpha() and letter not in letters)
