"""A conversation of the demo: a session, and a script of what its user says."""

from dataclasses import dataclass, field

from kakeya import AsyncSession
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_local.demo.report import Reading
from kakeya_local.demo.scripts import Script
from kakeya_local.demo.sight import Sight
from kakeya_local.demo.turn import Turn
from kakeya_local.errors import StackError

MAX_ANSWER_TOKENS = 64


@dataclass
class Conversation:
    """One session and what is said in it.

    Attributes:
        number: counted from 1.
        num_pinned: tokens of the system prompt, which the session keeps for ever.
    """

    number: int
    script: Script
    tokenizer: ChatTokenizer
    session: AsyncSession
    num_pinned: int
    _last_token_id: int | None = field(default=None, init=False)
    _sight: Sight = field(init=False)

    def __post_init__(self) -> None:
        self._sight = Sight(self.sink, self.num_pinned)

    @property
    def sink(self) -> int:
        """As it was granted; likewise the window."""
        return self.session.sink or 0

    @property
    def window(self) -> int:
        return self.session.window or 0

    async def take_turn(self, number: int) -> tuple[Turn, list[Reading]]:
        """Says the next line and takes the answer; after the script's last line comes its first.

        Returns:
            The turn and what append, generate and info each said of the session.

        Raises:
            KakeyaError: a call failed.
        """
        before = self.session.history_length or 0
        line = self.script.lines[(number - 1) % len(self.script.lines)]
        answer: list[int] = []
        async with self.session.turn(self._prompt(number, line.text), max_tokens=MAX_ANSWER_TOKENS) as generation:
            answer += [token_id async for token_id in generation]
        appended, done, info = generation.appended, generation.done, await self.session.info()
        if appended is None or done is None or done.num_forgotten_tokens is None:
            raise StackError(f"conversation {self.number} turn {number} ended without its result")
        self._last_token_id = answer[-1] if answer else None
        text = self.tokenizer.decode(answer).strip()
        still_in_sight = bool(line.forgotten) and self._sight.sees(line.forgotten, appended.num_forgotten_tokens)
        self._sight.add(f"{line.text} {text}", before, done.history_length)
        readings = [
            Reading(self.number, number, call, said.history_length, said.kv_live_bytes)
            for call, said in (("append", appended), ("generate", done), ("info", info))
        ]
        return Turn(
            conversation=self.number,
            turn=number,
            history_length=done.history_length,
            new_tokens=done.history_length - before,
            generated_tokens=done.num_tokens,
            prefill_seconds=done.prefill_seconds,
            decode_seconds=done.total_seconds,
            kv_live_bytes=done.kv_live_bytes,
            user=line.text,
            answer=text,
            expected=line.expects,
            evicted_tokens=appended.num_evicted_tokens + done.num_evicted_tokens,
            forgotten_tokens=done.num_forgotten_tokens,
            still_in_sight=still_in_sight,
        ), readings

    def _prompt(self, number: int, text: str) -> list[int]:
        if number == 1:
            return self.tokenizer.first_prompt(text, self.script.system)
        return self.tokenizer.next_prompt(text, self._last_token_id)
