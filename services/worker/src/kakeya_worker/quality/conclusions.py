"""Sentences that follow from the figures, whatever they turn out to be."""

from collections.abc import Iterator

from kakeya_worker.quality.configuration import BASE, COMPARED
from kakeya_worker.quality.multi_turn import MultiTurn
from kakeya_worker.quality.perplexity import PerplexityByPosition
from kakeya_worker.quality.recall import Recall
from kakeya_worker.quality.result import Result

_NOTICEABLE = 0.02  # a ratio of perplexities nearer to 1 is called none


def conclusions(result: Result) -> list[str]:
    """One sentence each."""
    return [*_falls(result), *_pins(result), *_multi_turn(result), *_sinks(result), *_int8(result)]


def _falls(result: Result) -> Iterator[str]:
    for each in _by_user(result):
        configuration = each.configuration
        kept = f"{configuration.sink} + {configuration.window} tokens"
        inside = f"{each.inside} of the facts in sight are recalled"
        if each.inside.value is None:
            inside = "no question came while its fact was in sight"
        if each.falls_at is None:
            asked = each.well_sampled
            reach = f"half of them still at {asked[-1].distance} tokens" if asked else "too few asked further"
            yield f"{_mode(each)} with {kept}: {inside}; {reach}."
        else:
            further = "and at all distances further" if each.stays_fallen else "but not at all distances further"
            yield f"{_mode(each)} with {kept}: {inside}; less than half at {each.falls_at} tokens, {further}."


def _pins(result: Result) -> Iterator[str]:
    for pinned in (each for each in result.recall if each.is_pinned):
        loose = next(
            each for each in result.recall
            if each.told_by == "system" and not each.is_pinned and _mode(each) == _mode(pinned)
            and each.configuration.capacity == pinned.configuration.capacity
        )  # fmt: skip
        yield (
            f"{_mode(pinned)} with S+W = {pinned.configuration.capacity}: a fact in the system message is recalled in "
            f"{pinned.anywhere} pinned, in {loose.anywhere} not pinned; beyond the window, at the worst distance, in "
            f"{_percent(pinned.lowest_beyond)} and {_percent(loose.lowest_beyond)}."
        )


def _multi_turn(result: Result) -> Iterator[str]:
    for each in result.multi_turn:
        if each.configuration.sink == result.plan.most_sinks:
            yield (
                f"{_mode(each)} with S+W = {each.configuration.capacity}, several facts asked in a row: recalled in "
                f"sight {each.in_sight}, out of sight {each.out_of_sight}."
            )


def _sinks(result: Result) -> Iterator[str]:
    most, fewest = result.plan.most_sinks, min(result.plan.options.sinks)
    for with_most in (each for each in result.perplexity if each.configuration.sink == most):
        for with_fewest in result.perplexity:
            if most != fewest and with_fewest.configuration.sink == fewest and _same_memory(with_most, with_fewest):
                yield from _worth(with_most, with_fewest)


def _worth(with_most: PerplexityByPosition, with_fewest: PerplexityByPosition) -> Iterator[str]:
    """What sinks are worth past the wrap."""
    ours, theirs = with_most.past_the_wrap.value, with_fewest.past_the_wrap.value
    if ours is None or theirs is None:
        return
    sinks, others = with_most.configuration.sink, with_fewest.configuration.sink
    ratio = theirs / ours
    if abs(ratio - 1) < _NOTICEABLE:
        verdict = f"{sinks} sinks are worth nothing noticeable to this model"
    else:
        verdict = f"{sinks} sinks {'lower' if ratio > 1 else 'raise'} its perplexity"
    num_tokens = with_most.past_the_wrap.num_tokens
    yield (
        f"{_mode(with_most)} past the wrap of S+W = {with_most.configuration.capacity}: perplexity {ours:.3f} with "
        f"{sinks} sinks, {theirs:.3f} with {others}, a ratio of {ratio:.3f} over {num_tokens:,} tokens: {verdict}."
    )


def _int8(result: Result) -> Iterator[str]:
    for each in result.comparisons:
        kept = f"{each.policy} with {each.sink} + {each.window} tokens"
        kv = " and ".join(f"{result.found[mode].facts.kv_dtype} KV" for mode in (COMPARED, BASE))
        yield (
            f"int8 against float32 as a worker runs them ({kv}), {kept}: recall {each.recall} against "
            f"{each.base_recall}, relative loss {_loss(each.recall_loss)}; the same answer to {each.agreement} of the "
            f"questions; relative loss of perplexity {_loss(each.perplexity_loss)}, of answers' tokens "
            f"{_loss(each.answers_loss)}."
        )


def _by_user(result: Result) -> list[Recall]:
    most_sinks = result.plan.most_sinks
    return [each for each in result.recall if each.told_by == "user" and each.configuration.sink == most_sinks]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _loss(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:+.2%}"


def _mode(of: Recall | MultiTurn | PerplexityByPosition) -> str:
    return f"{of.configuration.weights} {of.configuration.policy}"


def _same_memory(one: PerplexityByPosition, other: PerplexityByPosition) -> bool:
    return _mode(one) == _mode(other) and one.configuration.capacity == other.configuration.capacity
