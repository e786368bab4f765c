"""The result as a JSON document."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from kakeya_worker.quality.comparison import Comparison
from kakeya_worker.quality.conclusions import conclusions
from kakeya_worker.quality.distances import BEYOND
from kakeya_worker.quality.environment import environment
from kakeya_worker.quality.multi_turn import MultiTurn
from kakeya_worker.quality.perplexity import PerplexityByPosition
from kakeya_worker.quality.recall import Recall
from kakeya_worker.quality.result import Result
from kakeya_worker.quality.script import ANSWER_TOKENS
from kakeya_worker.quality.share import Share

SCHEMA = "kakeya.bench.quality"
SCHEMA_VERSION = 1
"""Rises with every change that a reader of the document could notice, but for fields that are added."""


def document(result: Result) -> dict[str, Any]:
    """Everything; numbers in tokens, seconds, nats' exponentials and shares from 0 to 1."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(result.seconds, 1),
        "model": {
            "name": result.model_name,
            "has_chat_template": not result.is_plain,
            "chosen": result.chosen,
            "modes": {weights: asdict(found.facts) for weights, found in result.found.items()},
        },
        "environment": environment(result.plan.options.num_threads),
        "settings": _settings(result),
        "recall": [_recall(each) for each in result.recall],
        "multi_turn": [_multi_turn(each) for each in result.multi_turn],
        "perplexity": [_perplexity(each) for each in result.perplexity],
        "full_attention": {
            weights: [asdict(interval) for interval in found.full_attention] for weights, found in result.found.items()
        },
        "int8_against_float32": [_comparison(each) for each in result.comparisons],
        "left_out": result.left_out,
        "figures": result.figures,
        "floors": [asdict(floor) for floor in result.judged],
        "conclusions": conclusions(result),
    }


def _settings(result: Result) -> dict[str, Any]:
    plan, options = result.plan, result.plan.options
    return {
        "backend": options.backend,
        "weights": options.weights,
        "policies": options.policies,
        "windows": plan.windows,
        "sinks": options.sinks,
        "distances": plan.distances,
        "num_samples": options.num_samples,
        "enough": plan.enough,
        "num_compared": plan.num_compared,
        "num_texts": plan.num_texts,
        "text": None if options.text is None else options.text.name,
        "text_length": plan.text_length,
        "reference_length": plan.reference_length,
        "answer_tokens": ANSWER_TOKENS,
        "beyond": BEYOND,
        "seed": options.seed,
        "quick": options.is_quick,
        "full": options.is_full,
    }


def _share(share: Share) -> dict[str, Any]:
    low, high = share.interval
    return {"hits": share.hits, "num": share.num, "share": share.value, "low": low, "high": high}


def _recall(each: Recall) -> dict[str, Any]:
    by_distance = [
        {
            "target": at.target,
            "distance": at.distance,
            **_share(at.recalled),
            "inside": _share(at.inside),
            "beyond": _share(at.beyond),
        }
        for at in each.by_distance
    ]
    return {
        **asdict(each.configuration),
        "told_by": each.told_by,
        "pinned": each.is_pinned,
        "falls_at": each.falls_at,
        "stays_fallen": each.stays_fallen,
        "lowest_inside": each.lowest_inside,
        "lowest_beyond": each.lowest_beyond,
        "inside": _share(each.inside),
        "anywhere": _share(each.anywhere),
        "by_distance": by_distance,
    }


def _multi_turn(each: MultiTurn) -> dict[str, Any]:
    return {
        **asdict(each.configuration),
        "in_sight": _share(each.in_sight),
        "out_of_sight": _share(each.out_of_sight),
    }


def _perplexity(each: PerplexityByPosition) -> dict[str, Any]:
    buckets = [
        {**asdict(bucket), "full_attention": None if full is None else asdict(full)}
        for bucket, full in zip(each.buckets, each.full_attention, strict=True)
    ]
    return {
        **asdict(each.configuration),
        "buckets": buckets,
        "past_the_wrap": asdict(each.past_the_wrap),
        "whole": asdict(each.whole),
        "curve": [asdict(interval) for interval in each.curve],
    }


def _comparison(each: Comparison) -> dict[str, Any]:
    return {
        "policy": each.policy,
        "sink": each.sink,
        "window": each.window,
        "recall": _share(each.recall),
        "base_recall": _share(each.base_recall),
        "agreement": _share(each.agreement),
        "recall_loss": each.recall_loss,
        "perplexity": asdict(each.perplexity),
        "base_perplexity": asdict(each.base_perplexity),
        "perplexity_loss": each.perplexity_loss,
        "answers_loss": each.answers_loss,
    }
