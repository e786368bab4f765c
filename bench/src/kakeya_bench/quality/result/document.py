"""The result as a JSON document: all that was found, and the figures that floors are about."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from kakeya_bench.quality import floors
from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.measure.measurement import Found
from kakeya_bench.quality.plan import ANSWER_TOKENS, BASE, BEYOND, COMPARED, Configuration, Kind, Plan
from kakeya_bench.quality.result.figures import between, curve, lowest, multi_turn, perplexity, recall
from kakeya_bench.report.environment import environment
from kakeya_bench.statistics.share import Share, told
from kakeya_worker.engine.seams.verifier import ModelFacts

SCHEMA = "kakeya.bench.quality"
SCHEMA_VERSION = 1
"""Rises with every change that a reader of the document could notice, but for fields that are added."""
_NOTICEABLE = 0.02  # a ratio of perplexities nearer to 1 is called none
_Document = Mapping[str, Any]


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
        "model": {**model, "modes": {weights: _facts(of_mode.facts) for weights, of_mode in found.items()}},
        "environment": environment() | {"num_threads": plan.settings.threads},
        "settings": _settings(plan),
        "recall": recalls,
        "multi_turn": multi_turns,
        "perplexity": [
            perplexity(configuration, of_mode.texts, losses, of_mode.reference)
            for of_mode in found.values()
            for configuration, losses in of_mode.losses.items()
        ],
        "full_attention": {weights: curve(of_mode.texts, of_mode.reference) for weights, of_mode in found.items()},
        "int8_against_float32": comparisons,
        "left_out": [reason for of_mode in found.values() for reason in of_mode.left_out],
        "figures": figures,
        "floors": [floors.document(floor, figures) for floor in plan.settings.floor],
    }
    return whole | {"conclusions": conclusions(whole)}


def _facts(facts: ModelFacts) -> dict[str, Any]:
    """But for where its tokenizer lies on this machine."""
    return {name: value for name, value in asdict(facts).items() if name != "tokenizer"}


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
    surprise, base_surprise = (between(found[BASE].texts, each, 0, num_positions) for each in (losses, base_losses))
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


def conclusions(document: _Document) -> list[str]:
    """Sentences that follow from the figures, whatever they turn out to be."""
    return [*_falls(document), *_pins(document), *_multi_turn(document), *_sinks(document), *_int8(document)]


def _falls(document: _Document) -> Iterator[str]:
    settings = document["settings"]
    for each in document["recall"]:
        if each["told_by"] != "user" or each["sink"] != max(settings["sinks"]):
            continue
        inside = f"{told(each['inside'])} of the facts in sight are recalled"
        if not each["inside"]["num"]:
            inside = "no question came while its fact was in sight"
        if each["falls_at"] is None:
            asked = [at["distance"] for at in each["by_distance"] if at["num"] >= settings["enough"]]
            reach = f"half of them still at {asked[-1]} tokens" if asked else "too few asked further"
        else:
            further = "and at all distances further" if each["stays_fallen"] else "but not at all distances further"
            reach = f"less than half at {each['falls_at']} tokens, {further}"
        yield f"{_mode(each)} with {each['sink']} + {each['window']} tokens: {inside}; {reach}."


def _pins(document: _Document) -> Iterator[str]:
    by_system = [each for each in document["recall"] if each["told_by"] == "system"]
    for pinned in (each for each in by_system if each["pinned"]):
        loose = next(each for each in by_system if not each["pinned"] and _memory(each) == _memory(pinned))
        yield (
            f"{_mode(pinned)} with S+W = {_capacity(pinned)}: a fact in the system message is recalled in "
            f"{told(pinned['anywhere'])} pinned, in {told(loose['anywhere'])} not pinned; beyond the window, at the "
            f"worst distance, in {_percent(pinned['lowest_beyond'])} and {_percent(loose['lowest_beyond'])}."
        )


def _multi_turn(document: _Document) -> Iterator[str]:
    for each in document["multi_turn"]:
        if each["sink"] == max(document["settings"]["sinks"]):
            yield (
                f"{_mode(each)} with S+W = {_capacity(each)}, several facts asked in a row: recalled in sight "
                f"{told(each['in_sight'])}, out of sight {told(each['out_of_sight'])}."
            )


def _sinks(document: _Document) -> Iterator[str]:
    """What sinks are worth past the wrap."""
    most, fewest = max(document["settings"]["sinks"]), min(document["settings"]["sinks"])
    for with_most in (each for each in document["perplexity"] if each["sink"] == most):
        for with_fewest in document["perplexity"]:
            ours, theirs = with_most["past_the_wrap"]["value"], with_fewest["past_the_wrap"]["value"]
            is_other = with_fewest["sink"] == fewest != most and _memory(with_most) == _memory(with_fewest)
            if not is_other or ours is None or theirs is None:
                continue
            ratio = theirs / ours
            verdict = f"{most} sinks {'lower' if ratio > 1 else 'raise'} its perplexity"
            if abs(ratio - 1) < _NOTICEABLE:
                verdict = f"{most} sinks are worth nothing noticeable to this model"
            yield (
                f"{_mode(with_most)} past the wrap of S+W = {_capacity(with_most)}: perplexity {ours:.3f} with {most} "
                f"sinks, {theirs:.3f} with {fewest}, a ratio of {ratio:.3f} over "
                f"{with_most['past_the_wrap']['num_tokens']:,} tokens: {verdict}."
            )


def _int8(document: _Document) -> Iterator[str]:
    for each in document["int8_against_float32"]:
        kv = " and ".join(f"{document['model']['modes'][mode]['kv_dtype']} KV" for mode in (COMPARED, BASE))
        lost = [_signed(each[name]) for name in ("recall_loss", "perplexity_loss", "answers_loss")]
        yield (
            f"int8 against float32 as a worker runs them ({kv}), {each['policy']} with {each['sink']} + "
            f"{each['window']} tokens: recall {told(each['recall'])} against {told(each['base_recall'])}, relative "
            f"loss {lost[0]}; the same answer to {told(each['agreement'])} of the questions; relative loss of "
            f"perplexity {lost[1]}, of answers' tokens {lost[2]}."
        )


def _signed(of: float | None) -> str:
    return "-" if of is None else f"{of:+.2%}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _mode(of: _Document) -> str:
    return f"{of['weights']} {of['policy']}"


def _capacity(of: _Document) -> int:
    return int(of["sink"] + of["window"])


def _memory(of: _Document) -> tuple[str, int]:
    return _mode(of), _capacity(of)
