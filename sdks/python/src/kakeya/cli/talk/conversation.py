"""A chat over one session: each turn sends only what is new.

The session is an async one although one thing happens at a time: Ctrl-C then cancels a task where it waits,
and does not strike as an exception in the middle of whatever code is running.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic
from typing import Any, Final

from kakeya import AppendResult, AsyncGeneration, AsyncSession, GenerateResult, InvalidRequest, StopReason
from kakeya.cli.output.sight import Forgetting, ranges, sight
from kakeya.cli.output.terminal import Terminal
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya.text.detokenizer import Detokenizer

_COMMAND: Final = re.compile(r"/\w+")
_LEAVING: Final = ("/quit", "/bye")


class Conversation:
    """Reads lines, answers them, tells what each turn cost.

    Args:
        runner: runs the session's event loop.
        sampling: what `AsyncSession.turn` takes besides the tokens.
        system: system prompt of the first turn.
        num_pinned: tokens of it that are kept for ever.
    """

    def __init__(
        self,
        runner: asyncio.Runner,
        session: AsyncSession,
        tokenizer: ChatTokenizer,
        terminal: Terminal,
        *,
        sampling: Mapping[str, Any],
        system: str | None,
        num_pinned: int = 0,
    ) -> None:
        self._runner = runner
        self._session = session
        self._tokenizer = tokenizer
        self._terminal = terminal
        self._sampling = sampling
        self._system = system
        self._forgetting = Forgetting(session.window or 1, num_pinned)
        self._has_begun = False
        self._last_token_id: int | None = None

    def run(self) -> None:
        """Until /quit, /bye or the end of the input. Raises KakeyaError, and KeyboardInterrupt between two answers."""
        while (line := self._terminal.read_line()) is not None:
            text = line.strip()
            if text in _LEAVING:
                return
            if text == "/info":
                self._show_info()
            elif _COMMAND.fullmatch(text):
                self._terminal.note(f"{text} is no command; there are /info, /quit and /bye")
            elif text:
                self._answer(text)

    def answer_alone(self, text: str) -> None:
        """One answer, and no line on what it cost. Raises KakeyaError, TokenizerError, KeyboardInterrupt."""
        prompt = self._prompt(text)
        generation = self._session.turn(prompt, **self._sampling)
        pace = _Pace()
        self._runner.run(self._stream(generation, pace))
        if generation.done and generation.done.stop_reason is StopReason.MAX_TOKENS:
            self._terminal.note(f"[the answer was cut off at {pace.num_tokens:,} tokens; --max-tokens takes more]")

    def _answer(self, text: str) -> None:
        prompt = self._prompt(text)
        generation = self._session.turn(prompt, **self._sampling)
        self._last_token_id = None
        pace = _Pace()
        try:
            self._runner.run(self._stream(generation, pace))
        except KeyboardInterrupt:
            if self._terminal.ended_by is not None or not self._terminal.is_interactive:
                raise
            self._terminal.note(f"[stopped after {pace.num_tokens} tokens]")
        except InvalidRequest as error:  # the session is as it was
            if not self._terminal.is_interactive:
                raise
            self._terminal.note(f"error: {error}")
        self._has_begun = self._has_begun or generation.appended is not None
        if generation.appended and generation.done:
            rate = pace.tokens_per_second
            self._terminal.note(statistics(len(prompt), generation.appended, generation.done, rate))

    def _prompt(self, text: str) -> list[int]:
        if not self._has_begun:
            return self._tokenizer.first_prompt(text, self._system)
        return self._tokenizer.next_prompt(text, self._last_token_id)

    async def _stream(self, generation: AsyncGeneration, pace: "_Pace") -> None:
        detokenizer = Detokenizer(self._tokenizer.decode)
        try:
            async with generation:
                async for token_id in generation:
                    if not pace.num_tokens and (notice := self._forgetting.notice(generation.truncated)):
                        self._terminal.note(notice)
                    pace.count()
                    self._last_token_id = token_id
                    self._terminal.write(detokenizer.push(token_id))
        finally:
            if pace.num_tokens:
                self._terminal.write(detokenizer.flush() + "\n")

    def _show_info(self) -> None:
        info = self._runner.run(self._session.info())
        for name, value in (asdict(info) | {"num_forgotten_tokens": info.num_forgotten_tokens}).items():
            self._terminal.note(f"{name:>20}  {_shown(value)}")


class _Pace:
    def __init__(self) -> None:
        self.num_tokens = 0
        self._first_at = self._last_at = 0.0

    def count(self) -> None:
        self._last_at = monotonic()
        self._first_at = self._first_at or self._last_at
        self.num_tokens += 1

    @property
    def tokens_per_second(self) -> float | None:
        """As they arrived here after the first one; None for fewer than two."""
        seconds = self._last_at - self._first_at
        return (self.num_tokens - 1) / seconds if self.num_tokens > 1 and seconds > 0 else None


def statistics(
    num_new_tokens: int,
    appended: AppendResult,
    done: GenerateResult,
    tokens_per_second: float | None,
) -> str:
    """One line on a finished turn."""
    rate = "" if tokens_per_second is None else f" at {tokens_per_second:.1f}/s"
    parts = [
        f"{num_new_tokens} new tokens, prefill {appended.prefill_seconds * 1e3:.0f} ms",
        f"{done.num_tokens} generated{rate} ({done.stop_reason})",
        f"history {done.history_length:,}",
        f"kv_live_bytes {done.kv_live_bytes:,}",
        f"evicted {appended.num_evicted_tokens + done.num_evicted_tokens}, {sight(done.retained, done.history_length)}",
    ]
    return f"[{' | '.join(parts)}]"


def _shown(value: Any) -> str:
    if value is None:
        return "not said"
    if isinstance(value, tuple):  # of ranges or of lengths
        return ", ".join(ranges((each,)) if isinstance(each, range) else _shown(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
