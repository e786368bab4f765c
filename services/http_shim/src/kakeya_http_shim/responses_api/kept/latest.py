"""Responses that this server has stored last: what goes on from one can be made while the runtime is asked for it.

Nothing is told or done by what is here: the runtime says whose a response is, and whether it is still kept. Where that
says something else all is made anew.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from weakref import ref

from kakeya_http_shim.responses_api.kept.kept_items import Block, KeptItems
from kakeya_http_shim.responses_api.kept.kept_response import Conversation, KeptResponse

_MAX_RESPONSES: Final = 256


@dataclass(frozen=True, slots=True)
class _Stored:
    """One.

    Attributes:
        blocks: its items, as long as they are remembered otherwise.
        output: of its answer.
    """

    blocks: Sequence[ref[Block]]
    output: Sequence[dict[str, Any]]


class LatestResponses:
    """The latest, by their ids."""

    def __init__(self, max_responses: int = _MAX_RESPONSES) -> None:
        self._max_responses = max_responses
        self._latest: OrderedDict[str, _Stored] = OrderedDict()

    def stored(self, kept: KeptResponse) -> None:
        """It is stored so."""
        if kept.behind is None:
            stored = _Stored([*map(ref, kept.items.blocks)], kept.response["output"])
            self._latest[kept.response["id"]] = stored
            while len(self._latest) > self._max_responses:
                self._latest.popitem(last=False)

    def deleted(self, response_id: str) -> None:
        """It is stored no longer, and its answer does not stay here."""
        self._latest.pop(response_id, None)

    def up_to(self, response_id: str) -> Conversation | None:
        """All that was said up to the end of one; None: that is not known here."""
        stored = self._latest.get(response_id)
        if stored is None:
            return None
        blocks = [block for each in stored.blocks if (block := each()) is not None]
        if len(blocks) < len(stored.blocks):
            return None
        kept = KeptItems(blocks=blocks).followed_by(stored.output)
        return Conversation(kept.stretches, kept)
