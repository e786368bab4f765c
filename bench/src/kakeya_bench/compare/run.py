"""A run of the bench: opens the session, plays the conversation round by round, keeps a report on disk."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from rich.console import Console

from kakeya.cli.flags import tokenizer_choice
from kakeya.kv_bytes import ConfigError
from kakeya_bench.compare.players import Player, RivalPlayer, RuntimePlayer
from kakeya_bench.compare.report import RIVAL_DTYPE, Report
from kakeya_bench.compare.rival import RUNTIME
from kakeya_bench.compare.settings import CompareSettings
from kakeya_bench.compare.texts.chats import Chats
from kakeya_bench.compare.texts.responses import Responses
from kakeya_bench.compare.texts.text_player import TextPlayer
from kakeya_bench.compare.texts.wording import Wording
from kakeya_bench.compare.turns import PlayedTurn, Said, Script
from kakeya_bench.conversation import clock, interruption, speech
from kakeya_bench.conversation.dialogue import closed_in_the_end
from kakeya_bench.conversation.runtime import connected
from kakeya_bench.report import files, progress
from kakeya_bench.report.progress import Progress

JSON_NAME = "compare.json"
MAX_ERRORS_IN_A_ROW = 3


async def run(settings: CompareSettings, console: Console) -> tuple[Report, int | None]:
    """Plays all turns, or those until a signal comes.

    Returns:
        The report in its last state, which is not on disk yet; and the exit status where a signal came.

    Raises:
        KakeyaError: the session cannot be opened.
        TokenizerError: it is not known which model is meant, or a chat's tokenizer is of no use.
        ConfigError: the config.json that is named cannot be used.
        NotWritable: the report has no place.
    """

    def tell(why: str) -> None:
        console.print(f"a session was not closed and will expire: {why}", markup=False, soft_wrap=True)

    async with connected(settings) as (client, workers):
        model = tokenizer_choice.model_to_answer(await client.list_models(), settings.model)
        rival_kv = speech.bytes_per_token(model.name, RIVAL_DTYPE, settings.config)
        if settings.config and rival_kv[0] is None:
            raise ConfigError(rival_kv[1])
        script = Script(settings, model.vocab_size)
        runtime = RuntimePlayer(client, script, workers)
        async with _rivals(settings, rival_kv[0]) as rivals, closed_in_the_end([runtime.dialogue], tell):
            session = await runtime.dialogue.open()
            known = await speech.learn(session, workers, config=settings.config, beside=None, kv_dtype=None)
            report = Report(settings=settings, facts=known, rival_kv=rival_kv)
            files.write_json(settings.directory / JSON_NAME, report.document())
            with progress.shown(console, "compare") as shown, interruption.heeded() as heeded:
                if await heeded.cuts_short(Rounds([runtime, *rivals], report, shown).play(script)):
                    report.state = "interrupted"
    return report, heeded.exit_status


@asynccontextmanager
async def _rivals(settings: CompareSettings, kv_bytes_per_token: int | None) -> AsyncIterator[list[Player]]:
    """Raises TokenizerError."""
    async with AsyncExitStack() as stack:
        players: list[Player] = []
        for each in settings.rival:
            if each.tokenizer is None:
                players.append(RivalPlayer(each, settings, kv_bytes_per_token=kv_bytes_per_token))
            else:
                words = Wording(each.tokenizer)
                made = Chats if each.api == "chat" else Responses
                api = await stack.enter_async_context(made(each, settings.timeout_s))
                place = sum(isinstance(player, TextPlayer) for player in players)
                players.append(
                    TextPlayer(api, each, settings, words, place=place, kv_bytes_per_token=kv_bytes_per_token)
                )
        yield players


@dataclass
class Rounds:
    """In each of them everybody plays the same turn, one at a time.

    Attributes:
        players: the runtime is the first.
        report: grows, and is written now and then: what is on disk outlives kill -9.
    """

    players: list[Player]
    report: Report
    shown: Progress
    _errors_in_a_row: Counter[str] = field(default_factory=Counter)
    _written: float = field(default_factory=lambda: clock.now())

    async def play(self, script: Script) -> None:
        """All turns, or those until the runtime fails too often. Raises KakeyaError, NotWritable."""
        self.shown.show(0.0, "warming up")
        others = script.prompts(1)  # since reading files and starting threads should be part of no turn
        for _ in range(self.report.settings.warm_up_turns):
            new_tokens = others.next_turn(None)
            for player in self.players:
                await player.warm_up(new_tokens)
        for player in self.players:
            self.report.rss_before[player.name] = await player.rss_bytes()
        start = clock.now()
        for said in script.turns():
            await self._round(said, start)
            if RUNTIME in self.report.left_out:
                self.report.state = "given_up"
                return
        await self._long_chats(script)
        self.report.state = "complete"

    async def _long_chats(self, script: Script) -> None:
        for player in self.players:
            self.shown.show(1.0, f"{player.name}: long chats")
            found = await player.long_chat(script)
            if found is not None:
                self.report.long_chats[player.name] = found

    async def _round(self, said: Said, start: float) -> None:
        for player in self.players:
            player.hear(said)
        playing = [player for player in self.players if player.plays(said.index)]
        first = (said.index - 1) % len(playing)  # another one in each round, so that no player keeps a place
        for place, player in enumerate([*playing[first:], *playing[:first]]):
            share = (said.index - 1 + place / len(playing)) / self.report.settings.turns
            self.shown.show(share, f"turn {said.index}: {player.name}, {_last(self.report.turns)}")
            self._note(await player.play(said, place, start))
        runtime_answer = self.players[0].answer or said.stand_in
        for player in self.players:
            player.settle(said, runtime_answer)
        self.players = [player for player in self.players if player.name not in self.report.left_out]

    def _note(self, turn: PlayedTurn) -> None:
        self.report.turns.append(turn)
        self._errors_in_a_row[turn.player] = self._errors_in_a_row[turn.player] + 1 if turn.error else 0
        if self._errors_in_a_row[turn.player] == MAX_ERRORS_IN_A_ROW:
            self.report.left_out[turn.player] = turn.index
        # Between two turns, where it is no player's time.
        if clock.now() - self._written >= self.report.settings.checkpoint_s:
            files.write_json(self.report.settings.directory / JSON_NAME, self.report.document())
            self._written = clock.now()


def _last(turns: Sequence[PlayedTurn]) -> str:
    if not turns:
        return "the first"
    last = turns[-1]
    if last.error is not None:
        return f"after {last.player}, which failed: {last.error}"
    first_token = last.time_to_first_token_seconds
    return f"after {last.player}" + (f": first token in {first_token:.2f} s" if first_token is not None else "")
