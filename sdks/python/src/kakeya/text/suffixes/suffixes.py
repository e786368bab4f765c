"""The suffixes of a template, without rendering old turns where those cannot matter.

A template is a program that is given all messages. Most write one message behind another, so that what they write
behind an answer depends on the answer and on what follows. Others number the turns, look at the first message, or write
the head into the last turn. Which of them it is, is found out once for each form of a question (`Wanted.key`: how the
answer and what follows look, the head, tools, variables), by rendering it behind other histories:

- Behind `histories.OLD`: what repeats old texts, or writes new ones before the answer, has no suffix at all.
- Behind the conversation's own history, and behind each of `histories.OTHERS` that the template takes. If the same
  comes out as behind one short message, it depends neither on the number of messages nor on their texts, roles, calls
  and thoughts, and the short form stands for the long one: first without the head, then with it (Mistral writes the
  system's text into the last turn). Where neither does, the whole conversation is rendered each time.

That what follows does not depend on the answer's text is found out with it, by two markers as that text; from then on
one is rendered.

A template that changes its ways beyond some number of messages does not show it in short ones. So the short form is
held against the whole again whenever a conversation is twice as long as those before it. A template that looks for a
certain word in old texts is not found out. Even there no message is lost and none gets another's text: what follows the
answer is rendered each time, as in a short conversation.
"""

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from kakeya.text.chat_template import ChatTemplate, Message
from kakeya.text.suffixes import histories
from kakeya.text.suffixes.suffix import Suffix, unless_refused
from kakeya.text.suffixes.wanted import Wanted

_MAX_FORMS = 1 << 12
"""That are known at once, a hundred bytes each: some for each head that is in use."""

Way = Literal["bare", "headed", "whole", "never"]


@dataclass(frozen=True, slots=True)
class _Known:
    """What was found out of a form.

    Attributes:
        way: behind what it is rendered: one message, the head and one message, all, or not at all.
        doublings: how many times the conversations doubled that it was held against.
    """

    way: Way
    doublings: int

    def holds_for(self, wanted: Wanted) -> bool:
        return self.way in ("whole", "never") or _doublings(wanted) <= self.doublings


class Suffixes:
    """Of one template. Its methods may be called from several threads at once.

    Args:
        control, eos: as of `Suffix`.

    Attributes:
        end: as of `Suffix`.

    Raises:
        TemplateStopped: the template comes to no end.
    """

    def __init__(self, template: ChatTemplate, control: Collection[str], eos: Collection[str]) -> None:
        self._suffix = Suffix(template, control, eos)
        self.from_end = self._suffix.from_end
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._lock = threading.Lock()
        self.end = self._suffix.end

    def text(self, wanted: Wanted) -> str | None:
        """What stands behind the answer, with stand-ins; None where it has no suffix.

        Raises:
            TokenizerError: as `ChatTemplate.render` does.
        """
        key = wanted.key()
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        if known is None or not known.holds_for(wanted):
            return self._learnt(key, known, wanted)
        return self._rendered(known.way, wanted)

    def _rendered(self, way: Way, wanted: Wanted) -> str | None:
        if way == "never":
            return None
        short = self._short(way, histories.SHORT, wanted, is_known=True) if way != "whole" else ()
        return short[0] if short else self._suffix.text(wanted)  # what is refused there is refused

    def _learnt(self, key: bytes, known: _Known | None, wanted: Wanted) -> str | None:
        """The suffix of the whole, and what is known from then on."""
        keeps_order = known is not None or self._keeps_order(wanted)
        if keeps_order is False:
            self._keep(key, _Known("never", 0))
            return None
        whole = self._suffix.text(wanted)
        if whole is None or keeps_order is None:  # perhaps in this conversation only
            return None
        ways: Sequence[Way] = ("bare", "headed") if known is None else (known.way,)
        way: Way = next((each for each in ways if self._holds(each, wanted, whole, is_new=known is None)), "whole")
        self._keep(key, _Known(way, _doublings(wanted)))
        return whole

    def _keep(self, key: bytes, known: _Known) -> None:
        with self._lock:
            self._known[key] = known
            self._known.move_to_end(key)
            if len(self._known) > _MAX_FORMS:
                self._known.popitem(last=False)

    def _keeps_order(self, wanted: Wanted) -> bool | None:
        """None where the template refuses what that is told with: then nothing is known."""
        return unless_refused(lambda: self._suffix.keeps_order(wanted), None)

    def _holds(self, way: Way, wanted: Wanted, whole: str, *, is_new: bool) -> bool:
        """Whether the same comes out behind a short history, and if that is new, behind others."""
        meant = self._suffix.meant(whole)
        if self._meant(self._short(way, histories.SHORT, wanted)) != [meant]:
            return False
        others = histories.OTHERS if is_new else ()
        return all(self._meant(self._short(way, each, wanted)) in ([], [meant]) for each in others)

    def _short(
        self, way: Way, history: Sequence[Message], wanted: Wanted, *, is_known: bool = False
    ) -> tuple[str | None, ...]:
        """One suffix; none where the template refuses the history."""
        return unless_refused(lambda: (self._suffix.text(_behind(way, history, wanted), is_known=is_known),), ())

    def _meant(self, found: tuple[str | None, ...]) -> list[str | None]:
        return [each and self._suffix.meant(each) for each in found]


def _behind(way: Way, history: Sequence[Message], wanted: Wanted) -> Wanted:
    if way == "bare":
        return wanted.behind([*histories.bare(wanted.head), *history], histories.TOOLS)
    return wanted.behind([*wanted.head, *history])


def _doublings(wanted: Wanted) -> int:
    return len(wanted.messages).bit_length()
