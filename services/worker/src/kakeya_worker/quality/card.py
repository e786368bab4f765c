"""The result as a card in Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from kakeya_worker.quality.conclusions import conclusions
from kakeya_worker.quality.configuration import BASE, COMPARED, Configuration
from kakeya_worker.quality.environment import environment
from kakeya_worker.quality.recall import Recall
from kakeya_worker.quality.result import Result
from kakeya_worker.quality.share import Share


def card(result: Result) -> str:
    """What was found, then the tables, then how it was measured."""
    parts = (
        [f"# {result.model_name}: what a bounded cache costs"],
        _bullets(conclusions(result)),
        *_floors(result),
        ["![Recall against distance](recall.png)", "", "![Perplexity by position](perplexity.png)"],
        *_recall(result),
        *_multi_turn(result),
        *_perplexity(result),
        *_comparisons(result),
        *_left_out(result),
        ["## How it was measured", "", *_how(result)],
    )
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table; all columns but the first to the right."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (header, marks, *rows)]


def number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _bullets(lines: Iterable[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _floors(result: Result) -> Iterator[list[str]]:
    if judged := result.judged:
        yield ["## Floors"]
        relation = {"minimum": "at least", "maximum": "at most"}
        yield table(
            ("floor", "figure", "bound", "verdict"),
            [
                (each.name, number(each.figure, 4), f"{relation[each.kind]} {each.bound:g}", each.verdict)
                for each in judged
            ],
        )


def _recall(result: Result) -> Iterator[list[str]]:
    titles = {
        ("user", False): "Recall against distance",
        ("system", False): "A fact in the system message, not pinned",
        ("system", True): "A fact in the system message, pinned",
    }
    for (told_by, is_pinned), title in titles.items():
        found = [each for each in result.recall if (each.told_by, each.is_pinned) == (told_by, is_pinned)]
        if found:
            yield [f"## {title}, {_modes(each.configuration for each in found)}"]
            yield _recall_table(found)


def _recall_table(found: list[Recall]) -> list[str]:
    """A row a configuration, a column a distance."""
    targets = sorted({at.target for each in found for at in each.by_distance})
    rows = []
    for each in found:
        by_target = {at.target: at for at in each.by_distance}
        cells = [_cell(by_target[target].recalled, each.enough) if target in by_target else "" for target in targets]
        falls_at = "-" if each.falls_at is None else str(each.falls_at)
        rows.append(
            (
                str(each.configuration),
                str(each.configuration.capacity),
                str(each.inside),
                _percent(each.lowest_inside),
                _percent(each.lowest_beyond),
                falls_at,
                *cells,
            )
        )
    return table(
        (
            "sessions",
            "S+W",
            "in sight",
            "worst in sight",
            "worst beyond",
            "falls at",
            *(f"≤ {target}" for target in targets),
        ),
        rows,
    )


def _multi_turn(result: Result) -> Iterator[list[str]]:
    if result.multi_turn:
        yield [f"## Multi-turn recall, {_modes(each.configuration for each in result.multi_turn)}"]
        yield table(
            ("sessions", "S+W", "in sight", "out of sight"),
            [
                (str(each.configuration), str(each.configuration.capacity), str(each.in_sight), str(each.out_of_sight))
                for each in result.multi_turn
            ],
        )


def _perplexity(result: Result) -> Iterator[list[str]]:
    yield ["## Perplexity by position", "", "Over all tokens / over the assistant's; full: with nothing forgotten."]
    rows = []
    for each in result.perplexity:
        for bucket, full in zip(each.buckets, each.full_attention, strict=True):
            rows.append(
                (
                    str(each.configuration),
                    f"{bucket.start:,} to {bucket.stop:,}",
                    "inside" if bucket.start == 0 else "past the wrap",
                    f"{bucket.num_tokens:,}",
                    f"{number(bucket.value)} / {number(bucket.of_answers)}",
                    "" if full is None else f"{number(full.value)} / {number(full.of_answers)}",
                )
            )
    yield table(("sessions", "positions", "", "tokens", "perplexity", "full"), rows)


def _comparisons(result: Result) -> Iterator[list[str]]:
    if result.comparisons:
        kv = {mode: result.found[mode].facts.kv_dtype for mode in (COMPARED, BASE)}
        yield ["## int8 against float32"]
        yield [f"Modes as a worker runs them: int8 with KV of {kv[COMPARED]}, float32 with KV of {kv[BASE]}."]
        yield table(
            ("sessions", "", "int8", "float32", "relative loss"),
            [row for each in result.comparisons for row in (
                (f"{each.policy} S={each.sink} W={each.window}", "recall in sight", str(each.recall),
                 str(each.base_recall), _loss(each.recall_loss)),
                ("", "same answer", str(each.agreement), "", ""),
                ("", f"perplexity, {each.perplexity.num_tokens:,} tokens", number(each.perplexity.value, 4),
                 number(each.base_perplexity.value, 4), _loss(each.perplexity_loss)),
                ("", f"perplexity of answers, {each.perplexity.num_answer_tokens:,} tokens",
                 number(each.perplexity.of_answers, 4), number(each.base_perplexity.of_answers, 4),
                 _loss(each.answers_loss)),
            )],
        )  # fmt: skip


def _left_out(result: Result) -> Iterator[list[str]]:
    if result.left_out:
        yield ["## Left out"]
        yield _bullets(result.left_out)


def _how(result: Result) -> list[str]:
    plan, options = result.plan, result.plan.options
    where = environment(options.num_threads)
    text = "dialogues that the bench wrote" if options.text is None else f"`{options.text.name}`"
    modes = (
        f"{weights}: KV {found.facts.kv_dtype}, fingerprint `{found.facts.fingerprint}`"
        for weights, found in result.found.items()
    )
    measured = [weights for weights in options.weights if plan.is_whole(weights)]
    chosen = [f"This machine's worker would choose {result.chosen} by itself."] if result.chosen else []
    plain = ["The tokenizer has no chat template: messages are plain lines."] if result.is_plain else []
    return _bullets(
        [
            f"{options.num_samples} dialogues of each kind, seed {options.seed}; perplexity of {plan.num_texts} texts "
            f"of {plan.text_length:,} tokens at most: {text}. Shares with Wilson's 95 % interval.",
            f"Measured whole: {', '.join(measured)}. Other modes, and unless with `--full` facts in the system message "
            f"and recall with fewer sinks, only at the middle window: {plan.middle_window}.",
            *chosen,
            f"Worst: of the distances at which at least {plan.enough} were asked; other shares stand in brackets.",
            *plain,
            *modes,
            f"{where['cpu']}; compute threads: {options.num_threads}; {result.seconds:.0f} s.",
        ]
    )


def _modes(configurations: Iterable[Configuration]) -> str:
    return " and ".join(dict.fromkeys(each.weights for each in configurations))


def _cell(share: Share, enough: int) -> str:
    """In brackets where too little was asked to judge it."""
    return _percent(share.value) if share.num >= enough else f"({_percent(share.value)})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _loss(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:+.2%}"
