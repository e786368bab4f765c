"""What one template writes behind an answer, found with markers; and what its answers end with."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from kakeya.text.chat_template import ChatTemplate, Message
from kakeya.text.rendering.head import texts
from kakeya.text.suffixes import histories, marked_answer
from kakeya.text.suffixes.marked_answer import MARKERS, Way
from kakeya.text.suffixes.wanted import Wanted
from kakeya.text.tokenizer_error import TemplateStopped, TokenizerError

Made = TypeVar("Made")


class Suffix:
    """A template's. Its methods may be called from several threads at once, and raise what `ChatTemplate.render` does.

    Args:
        control: the control tokens, as they are written.
        eos: those of them that end an answer of the model's.

    Attributes:
        end: the control token that the template ends an answer with, "" for none: of those right behind its text the
            first that ends the model's answers, or else the first of all. White space may stand between them.
    """

    def __init__(self, template: ChatTemplate, control: Collection[str], eos: Collection[str]) -> None:
        self._template = template
        self._control = control
        self.end = self._found_end(eos)

    def text(self, wanted: Wanted, *, is_known: bool = False) -> str | None:
        """What stands behind the answer, with stand-ins, up to and with the beginning of the next one.

        Args:
            is_known: that behind an answer of this form it does not depend on the answer's text; one marker will do.

        Returns:
            None where a marker as the answer does not come out exactly once, or what follows depends on it.
        """
        found = self._around(wanted, MARKERS[:1] if is_known else MARKERS)
        if found is None:
            return None
        behind = found[1]
        if not wanted.repeats_answer:
            return behind
        if marked_answer.has_calls(wanted.answer):
            return self._with_calls(wanted, behind)
        text = "".join(texts(wanted.answer.get("content")))
        return self._lead(wanted) + self._template.as_text(text) + behind

    def meant(self, text: str) -> str:
        """Without stand-ins."""
        return self._template.unmarked(text)

    def keeps_order(self, wanted: Wanted) -> bool:
        """Whether nothing that was said before the answer comes out behind it, and nothing new before it or twice.

        Told with texts that no two messages share; so it holds for the template, whatever is said.
        """
        tail, new = histories.renamed(wanted.messages[wanted.index + 1 :])
        messages = [*histories.bare(wanted.head), *histories.OLD, wanted.answer, *tail]
        index = len(wanted.head) + len(histories.OLD)
        found = self._around(replace(wanted, messages=messages, index=index, repeats_answer=False))
        if found is None:
            return False
        before, behind = (self.meant(each).casefold() for each in found)
        places = [behind.find(text.casefold()) for text in new if text.casefold() in behind]
        return (
            not any(text.casefold() in before for text in new)
            and not any(text.casefold() in behind for text in histories.OLD_TEXTS)
            and all(behind.count(text.casefold()) <= 1 for text in new)
            and places == sorted(places)
        )

    def _around(self, wanted: Wanted, markers: Sequence[str] = MARKERS) -> tuple[str, str] | None:
        """What stands before the answer and behind it."""
        for way in marked_answer.ways(wanted.answer):
            found = [parted for marker in markers if (parted := self._parted(wanted, way, marker)) is not None]
            if len(found) == len(markers) and len({self.meant(behind) for _, behind in found}) == 1:
                return found[0]
        return None

    def _parted(self, wanted: Wanted, way: Way, marker: str) -> tuple[str, str] | None:
        found = self._marked(wanted, way, marker)
        if found is None or not marked_answer.has_calls(wanted.answer):
            return found
        # The rest of the call is the answer's: its end is where the template ends it. A marker in the text does for
        # templates that leave out calls, of which nothing stands behind it then.
        place = found[1].find(self.end) if self.end else -1
        if place < 0 or (way is marked_answer.as_text and found[1][:place].strip()):
            return None
        return found[0], found[1][place:]

    def _marked(self, wanted: Wanted, way: Way, marker: str) -> tuple[str, str] | None:
        before, behind = wanted.messages[: wanted.index], wanted.messages[wanted.index + 1 :]
        rendered = self._rendered(wanted, [*before, way(wanted.answer, marker), *behind])
        return marked_answer.parted(rendered, self.meant(rendered), marker)

    def _rendered(self, wanted: Wanted, messages: Sequence[Message]) -> str:
        return self._template.render(messages, tools=wanted.tools, variables=wanted.variables, at=wanted.at)

    def _opened(self, wanted: Wanted) -> str | None:
        """All up to the place where the answer begins; None where the template does not write that."""
        return unless_refused(lambda: self._rendered(wanted, wanted.messages[: wanted.index]), None)

    def _lead(self, wanted: Wanted) -> str:
        """What the template writes between the beginning of an answer and its text, such as a blank.

        Where it writes what was said before in another way once there is an answer, that is told without a head.
        """
        for each in (wanted, replace(wanted.behind(histories.SHORT), tools=None)):
            opened, found = self._opened(each), unless_refused(partial(self._around, each), None)
            if opened is None or found is None:
                continue
            if self.meant(found[0]).startswith(self.meant(opened)):
                return found[0][len(opened) :]
        return ""

    def _with_calls(self, wanted: Wanted, behind: str) -> str | None:
        """An answer with calls, as the template writes it, and what stands behind; None where that does not fit in."""
        opened, whole = self._opened(wanted), self._rendered(wanted, wanted.messages)
        meant = self.meant(whole)
        if opened is None or not meant.startswith(self.meant(opened)):
            return None
        return whole[len(opened) :] if meant.endswith(self.meant(behind)) else None

    def from_end(self, text: str) -> str | None:
        """A suffix from the end of the answer on; None where there is more before that than control tokens."""
        if self.end and (stripped := text.lstrip()).startswith(self.end):
            return stripped  # nearly always; some tokenizers have thousands of control tokens
        return next((text[place:] for token, place in self._leading(text) if token == self.end), None)

    def _found_end(self, eos: Collection[str]) -> str:
        tokens = [token for token, _ in self._leading(self._behind_an_answer())]
        return next((token for token in tokens if token in eos), tokens[0] if tokens else "")

    def _leading(self, text: str) -> Iterator[tuple[str, int]]:
        """The control tokens that a text begins with, and where they stand; white space may be around them."""
        place = 0
        while True:
            place += len(text[place:]) - len(text[place:].lstrip())
            token = max((each for each in self._control if text.startswith(each, place)), key=len, default="")
            if not token:
                return
            yield token, place
            place += len(token)

    def _behind_an_answer(self) -> str:
        """Some templates demand a system message."""
        messages: list[Message] = [*histories.SHORT, {"role": "assistant", "content": "-"}, *histories.SHORT]
        systems: tuple[list[Message], ...] = ([], [{"role": "system", "content": "-"}])
        for system in systems:
            wanted = Wanted([*system, *messages], len(system) + 1, False, None, None, datetime.now())
            found = unless_refused(partial(self._marked, wanted, marked_answer.as_text, MARKERS[0]), None)
            if found is not None:
                return found[1]
        return ""


def unless_refused(make: Callable[[], Made], otherwise: Made) -> Made:
    """What is made, or the other where the template fails on it or refuses it. Raises TemplateStopped."""
    try:
        return make()
    except TemplateStopped:
        raise
    except TokenizerError:
        return otherwise
