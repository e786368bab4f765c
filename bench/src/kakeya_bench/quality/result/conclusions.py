"""Sentences that follow from the figures, whatever they turn out to be."""

from collections.abc import Iterator, Mapping
from typing import Any

from kakeya_bench.quality.plan import BASE, COMPARED
from kakeya_bench.statistics.share import told

_NOTICEABLE = 0.02  # a ratio of perplexities nearer to 1 is called none
_Entry = Mapping[str, Any]


def conclusions(document: _Entry) -> list[str]:
    """One sentence each."""
    return [*_falls(document), *_pins(document), *_multi_turn(document), *_sinks(document), *_int8(document)]


def _falls(document: _Entry) -> Iterator[str]:
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


def _pins(document: _Entry) -> Iterator[str]:
    by_system = [each for each in document["recall"] if each["told_by"] == "system"]
    for pinned in (each for each in by_system if each["pinned"]):
        loose = next(each for each in by_system if not each["pinned"] and _memory(each) == _memory(pinned))
        yield (
            f"{_mode(pinned)} with S+W = {_capacity(pinned)}: a fact in the system message is recalled in "
            f"{told(pinned['anywhere'])} pinned, in {told(loose['anywhere'])} not pinned; beyond the window, at the "
            f"worst distance, in {_percent(pinned['lowest_beyond'])} and {_percent(loose['lowest_beyond'])}."
        )


def _multi_turn(document: _Entry) -> Iterator[str]:
    for each in document["multi_turn"]:
        if each["sink"] == max(document["settings"]["sinks"]):
            yield (
                f"{_mode(each)} with S+W = {_capacity(each)}, several facts asked in a row: recalled in sight "
                f"{told(each['in_sight'])}, out of sight {told(each['out_of_sight'])}."
            )


def _sinks(document: _Entry) -> Iterator[str]:
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


def _int8(document: _Entry) -> Iterator[str]:
    for each in document["int8_against_float32"]:
        kv = " and ".join(f"{document['model']['modes'][mode]['kv_dtype']} KV" for mode in (COMPARED, BASE))
        lost = [_loss(each[name]) for name in ("recall_loss", "perplexity_loss", "answers_loss")]
        yield (
            f"int8 against float32 as a worker runs them ({kv}), {each['policy']} with {each['sink']} + "
            f"{each['window']} tokens: recall {told(each['recall'])} against {told(each['base_recall'])}, relative "
            f"loss {lost[0]}; the same answer to {told(each['agreement'])} of the questions; relative loss of "
            f"perplexity {lost[1]}, of answers' tokens {lost[2]}."
        )


def _loss(of: float | None) -> str:
    return "-" if of is None else f"{of:+.2%}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _mode(of: _Entry) -> str:
    return f"{of['weights']} {of['policy']}"


def _capacity(of: _Entry) -> int:
    return int(of["sink"] + of["window"])


def _memory(of: _Entry) -> tuple[str, int]:
    return _mode(of), _capacity(of)
