"""A conversation of the demo: a text is read to a session, a sentence a turn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kakeya import AsyncSession
from kakeya_local.demo_report import Reading, Turn
from kakeya_local.errors import StackError

TOKENS_PER_TURN = 16


@dataclass
class Conversation:
    """One session and what is said in it.

    Attributes:
        number: counted from 1.
        title: of the text.
        sentences: token ids, one list a turn; after the last comes the first.
        generated: all ids that the model answered.
    """

    number: int
    title: str
    sentences: Sequence[list[int]]
    session: AsyncSession
    generated: list[int] = field(default_factory=list)

    async def take_turn(self, turn: int) -> tuple[Turn, list[Reading]]:
        """Appends the next sentence and generates.

        Returns:
            The turn and what append, generate and info each said of the session.

        Raises:
            KakeyaError: a call failed.
        """
        before = self.session.history_length or 0
        sentence = self.sentences[(turn - 1) % len(self.sentences)]
        async with self.session.turn(sentence, max_tokens=TOKENS_PER_TURN) as generation:
            self.generated += [token_id async for token_id in generation]
        appended, done, info = generation.appended, generation.done, await self.session.info()
        if appended is None or done is None:
            raise StackError(f"conversation {self.number} turn {turn} ended without its result")
        readings = [
            Reading(self.number, turn, call, said.history_length, said.kv_live_bytes)
            for call, said in (("append", appended), ("generate", done), ("info", info))
        ]
        return Turn(
            conversation=self.number,
            turn=turn,
            history_length=done.history_length,
            new_tokens=done.history_length - before,
            generated_tokens=done.num_tokens,
            prefill_seconds=done.prefill_seconds,
            decode_seconds=done.total_seconds,
            kv_live_bytes=done.kv_live_bytes,
        ), readings
