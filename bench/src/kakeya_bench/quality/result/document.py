"""The result as a JSON document: all that was found, and the figures that floors are about."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from kakeya_bench.quality import floors
from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.measure.measurement import Found
from kakeya_bench.quality.plan import ANSWER_TOKENS, BASE, BEYOND, COMPARED, Configuration, Kind, Plan
from kakeya_bench.quality.result import perplexity
from kakeya_bench.quality.result.conclusions import conclusions
from kakeya_bench.quality.result.recall import lowest, multi_turn, recall
from kakeya_bench.report.environment import environment
from kakeya_bench.statistics.share import Share

SCHEMA = "kakeya.bench.quality"
SCHEMA_VERSION = 1
"""Rises with every change that a reader of the document could notice, but for fields that are added."""


def document(plan: Plan, found: Mapping[str, Found], model: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
    """Everything; numbers in tokens, seconds, nats' exponentials and shares from 0 to 1.

    Args:
        found: by mode of the weights.
        model: what is known of it beside the facts of each mode.
        seconds: that the run took.
    """
    asked = [each for of_mode in found.values() for each in of_mode.asked]
    recalls = [recall(each, plan.enough) for each in asked if each.kind in (Kind.RECALL, Kind.SYSTEM, Kind.PINNED)]
    multi_turns = [multi_turn(each) for each in asked if each.kind is Kind.MULTI_TURN]
    comparisons = [_comparison(found, *pair) for pair in _pairs(plan, found)]
    figures = _figures(plan, recalls, multi_turns, comparisons)
    whole = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "model": {**model, "modes": {weights: asdict(of_mode.facts) for weights, of_mode in found.items()}},
        "environment": environment() | {"num_threads": plan.settings.threads},
        "settings": _settings(plan),
        "recall": recalls,
        "multi_turn": multi_turns,
        "perplexity": [
            perplexity.perplexity(configuration, of_mode.texts, losses, of_mode.reference)
            for of_mode in found.values()
            for configuration, losses in of_mode.losses.items()
        ],
        "full_attention": {
            weights: perplexity.curve(of_mode.texts, of_mode.reference) for weights, of_mode in found.items()
        },
        "int8_against_float32": comparisons,
        "left_out": [reason for of_mode in found.values() for reason in of_mode.left_out],
        "figures": figures,
        "floors": [floors.document(floor, figures) for floor in plan.settings.floor],
    }
    return whole | {"conclusions": conclusions(whole)}


def _settings(plan: Plan) -> dict[str, Any]:
    named = ("enough", "num_compared", "num_texts", "text_length", "reference_length")
    given = {"backend", "weights", "policies", "sinks", "seed", "quick", "full"}
    return {
        **plan.settings.model_dump(mode="json", include=given),
        **{name: getattr(plan, name) for name in named},
        "windows": list(plan.windows),
        "distances": list(plan.distances),
        "num_samples": plan.settings.num_samples,
        "text": plan.settings.text and plan.settings.text.name,
        "answer_tokens": ANSWER_TOKENS,
        "beyond": BEYOND,
    }


def _pairs(plan: Plan, found: Mapping[str, Found]) -> Iterator[tuple[Configuration, Configuration]]:
    """Where int8 is compared with float32: the same but for the weights, one pair a policy."""
    for ours in found[COMPARED].losses if COMPARED in found else ():
        base = Configuration(BASE, ours.policy, ours.sink, ours.window)
        if plan.is_compared(ours) and BASE in found and base in found[BASE].losses:
            yield ours, base


def _comparison(found: Mapping[str, Found], ours: Configuration, base: Configuration) -> dict[str, Any]:
    """int8 beside float32, each with the KV that a worker keeps beside it, on the same dialogues and texts.

    `recall_loss` is 1 - int8 / float32, None where float32 recalls nothing; those of perplexity are int8 / float32 - 1.
    """
    outcomes, base_outcomes = (_compared(found[where.weights], where) for where in (ours, base))
    losses, base_losses = found[COMPARED].losses[ours], found[BASE].losses[base]
    num_positions = min(max(map(len, losses)), max(map(len, base_losses)))
    surprise, base_surprise = (
        perplexity.between(found[BASE].texts, each, 0, num_positions) for each in (losses, base_losses)
    )
    share, base_share = (Share.of(each.recalled for each in some) for some in (outcomes, base_outcomes))
    pairs = zip(outcomes, base_outcomes, strict=True)
    return {
        "policy": ours.policy,
        "sink": ours.sink,
        "window": ours.window,
        "recall": share.document(),
        "base_recall": base_share.document(),
        "agreement": Share.of(one.said == other.said for one, other in pairs).document(),
        "recall_loss": 1 - (share.value or 0.0) / base_share.value if base_share.value else None,
        "perplexity": surprise,
        "base_perplexity": base_surprise,
        "perplexity_loss": _loss(surprise["value"], base_surprise["value"]),
        "answers_loss": _loss(surprise["of_answers"], base_surprise["of_answers"]),
    }


def _compared(found: Found, configuration: Configuration) -> Sequence[Outcome]:
    """None where no distance is in sight."""
    asked = (each for each in found.asked if each.kind is Kind.COMPARED and each.configuration == configuration)
    return next((each.outcomes for each in asked), ())


def _loss(ours: float | None, base: float | None) -> float | None:
    return None if ours is None or base is None else ours / base - 1


def _figures(
    plan: Plan, recalls: list[dict[str, Any]], multi_turns: list[dict[str, Any]], comparisons: list[dict[str, Any]]
) -> dict[str, float | None]:
    """What floors are about, by their names; None where it was not measured.

    Shares are of sessions with the most sinks; that of the worst mode, policy, window and distance counts, of those at
    which enough was asked.
    """
    by_user = [each for each in recalls if each["told_by"] == "user" and each["sink"] == plan.most_sinks]
    in_a_row = [each["in_sight"] for each in multi_turns if each["sink"] == plan.most_sinks]
    return {
        "recall_inside": _lowest(each["lowest_inside"] for each in by_user),
        "recall_pinned": _lowest(each["lowest_beyond"] for each in recalls if each["pinned"]),
        "multi_turn_recall": lowest(in_a_row, plan.enough),
        "int8_recall_loss": _highest([each["recall_loss"] for each in comparisons]),
        "int8_perplexity_loss": _highest([each["perplexity_loss"] for each in comparisons]),
    }


def _lowest(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)


def _highest(losses: Sequence[float | None]) -> float | None:
    """None, too, where one of them is not known."""
    known = [loss for loss in losses if loss is not None]
    return max(known) if known and len(known) == len(losses) else None
