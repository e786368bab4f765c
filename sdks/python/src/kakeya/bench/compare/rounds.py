"""The conversation, round by round: in each of them everybody plays the same turn, one at a time."""

import time
from collections import Counter
from collections.abc import Sequence

from kakeya.bench import report_file
from kakeya.bench.compare import said
from kakeya.bench.compare.played_turn import PlayedTurn
from kakeya.bench.compare.report import JSON_NAME, Report
from kakeya.bench.compare.rival import RUNTIME
from kakeya.bench.compare.rival_player import RivalPlayer
from kakeya.bench.compare.runtime_player import RuntimePlayer
from kakeya.bench.compare.said import Said
from kakeya.bench.progress import Progress
from kakeya.bench.prompts import RandomTokens

MAX_ERRORS_IN_A_ROW = 3
Player = RuntimePlayer | RivalPlayer


class Rounds:
    """Plays them.

    Args:
        report: grows, and is written now and then: what is on disk outlives kill -9.
    """

    def __init__(self, runtime: RuntimePlayer, rivals: Sequence[RivalPlayer], report: Report, shown: Progress) -> None:
        self._runtime = runtime
        self._rivals = list(rivals)
        self._report = report
        self._options = report.options
        self._shown = shown
        self._errors_in_a_row: Counter[str] = Counter()
        self._written = time.monotonic()

    async def play(self, vocab_size: int) -> None:
        """All turns, or those until the runtime fails too often. Raises KakeyaError, NotWritable."""
        options = self._options
        self._shown.show(0.0, "warming up")
        await self._warm_up(vocab_size)
        for player in self._players():
            self._report.rss_before[player.name] = await player.rss_bytes()
        start = time.perf_counter()
        for turn in said.conversation(
            options.num_turns, options.num_new_tokens, options.max_tokens, vocab_size=vocab_size, seed=options.seed
        ):
            await self._round(turn, start)
            if RUNTIME in self._report.left_out:
                self._report.state = "given_up"
                return
        self._report.state = "complete"

    async def _warm_up(self, vocab_size: int) -> None:
        """What a server does only once, as reading files and starting threads, should be part of no turn."""
        options = self._options
        tokens = RandomTokens(options.num_new_tokens, vocab_size, seed=options.seed, conversation=2)
        for _ in range(options.num_warm_up_turns):
            new_tokens = tokens.next_turn(None)
            for player in self._players():
                await player.warm_up(new_tokens)

    async def _round(self, turn: Said, start: float) -> None:
        for player in self._players():
            player.hear(turn)
        playing = order([player for player in self._players() if player.plays(turn.index)], turn.index)
        for place, player in enumerate(playing):
            share = (turn.index - 1 + place / len(playing)) / self._options.num_turns
            self._shown.show(share, f"turn {turn.index}: {player.name}, {_last(self._report.turns)}")
            self._note(await player.play(turn, place, start))
        runtime_answer = self._runtime.answer or turn.stand_in
        for rival in self._rivals:
            rival.settle(turn, runtime_answer)
        self._runtime.settle(turn)
        self._rivals = [rival for rival in self._rivals if rival.name not in self._report.left_out]

    def _note(self, turn: PlayedTurn) -> None:
        self._report.turns.append(turn)
        self._errors_in_a_row[turn.player] = self._errors_in_a_row[turn.player] + 1 if turn.error else 0
        if self._errors_in_a_row[turn.player] == MAX_ERRORS_IN_A_ROW:
            self._report.left_out[turn.player] = turn.index
        # Between two turns, where it is nobody's time.
        if time.monotonic() - self._written >= self._options.checkpoint_seconds:
            report_file.write_json(self._options.output / JSON_NAME, self._report.document())
            self._written = time.monotonic()

    def _players(self) -> list[Player]:
        return [self._runtime, *self._rivals]


def order(players: Sequence[Player], index: int) -> list[Player]:
    """Who plays when: another one is the first in each round, so that no place is anybody's own."""
    first = (index - 1) % len(players)
    return [*players[first:], *players[:first]]


def _last(turns: Sequence[PlayedTurn]) -> str:
    if not turns:
        return "the first"
    last = turns[-1]
    if last.error is not None:
        return f"after {last.player}, which failed: {last.error}"
    first_token = last.time_to_first_token_seconds
    return f"after {last.player}" + (f": first token in {first_token:.2f} s" if first_token is not None else "")
