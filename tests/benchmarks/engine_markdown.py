"""The report of `make bench-engine` as tables in Markdown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from kakeya.cli.output import byte_count
from tests.benchmarks.engine_case import DECODE
from tests.benchmarks.engine_contestants import BFLOAT16, INT8, LLAMA

Document = Mapping[str, Any]


def page(document: Document) -> str:
    """The whole report."""
    sections = (
        ["# The engine beside transformers and llama.cpp"],
        _conclusions(document),
        ["![Speed beside llama.cpp](engine.png)"],
        ["## Times", "", *_times(document)],
        ["## Loading and memory", "", *_memory(document)],
        ["## How llama.cpp ran", "", *_settings(document)],
        ["## How it was measured", "", *_how(document)],
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _conclusions(document: Document) -> list[str]:
    """The bounds, then the floor in its own units."""
    floor = document["floor"]
    rows = [(each["gate"], each["reason"], each["formula"], each["outcome"]) for each in document["verdicts"]]
    return [
        "How many times as long llama.cpp (Q8_0) takes as Kakeya (int8), and a decode step in times of reading its "
        "weights once:",
        "",
        *table(("ratio", "found", "bound", "verdict"), rows),
        "",
        f"To read {floor['weight_bytes']:,} bytes of weights once takes {_ms(floor['seconds'])} ms at "
        f"{floor['bytes_per_second'] / 1e9:.1f} GB/s; a step of one session takes {_ms(floor['step_seconds'])} ms.",
    ]


def _times(document: Document) -> list[str]:
    """Milliseconds, a row a case."""
    contestants = list(document["loading"])
    header = ("ms", "keys: Kakeya", "keys: others", *contestants, "llama.cpp / int8")
    rows = []
    for case in document["cases"]:
        context, ratio = case["context"], case["llama_ratio"]
        rows.append(
            (
                _title(case),
                _keys(context["kakeya"]["keys"]),
                _keys(context["others"]["keys"]),
                *(_ms(case["seconds"][name]) for name in contestants),
                f"{ratio['estimate']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})",
            )
        )
    return [*table(header, rows), "", *_chunks(document)]


def _title(case: Document) -> str:
    if case["kind"] == DECODE:
        return f"a decode step of {case['number']}, window {case['window']}"
    return f"a prefill of {case['number']}, window {case['window']}"


def _chunks(document: Document) -> list[str]:
    chunk, plan = document["large_chunk"], document["plan"]
    found = (
        f"{case} {_ms(seconds[INT8])} ms in int8 and {_ms(seconds[BFLOAT16])} ms in bfloat16"
        for case, seconds in chunk["seconds"].items()
    )
    return [
        f"Kakeya's prefills are in chunks of {plan['chunk']} tokens, a worker's default. "
        f"In chunks of {chunk['chunk']}: {'; '.join(found)}."
    ]


def _memory(document: Document) -> list[str]:
    """A row a contestant."""
    serving = document["memory"]
    rows = []
    for name, loads in document["loading"].items():
        cold, cached = loads["cold"], loads["cached"]
        rows.append(
            (
                name,
                f"{cold['seconds']:.1f} s",
                f"{cached['seconds']:.1f} s",
                *(_bytes(load[field]) for load in (cold, cached) for field in _MEMORY),
                *(_bytes(serving[name][field]) for field in _MEMORY),
            )
        )
    header = (
        "",
        "cold load",
        "cached load",
        *(f"{when}: {what}" for when in ("cold", "cached", serving["case"]) for what in ("peak RSS", "peak anonymous")),
    )
    return [
        *table(header, rows),
        "",
        "A load ends with the logits after one token; imports are not in it. Before a cold load the system was asked "
        "to read the model's files from disk, and no int8 weights were kept; at a cached load they were, and the files "
        f"were in the file cache. {serving['case']}: while full sessions decode in a process of their own; "
        "transformers holds one session more, which the others are copied from. RSS has what is mapped of files; "
        "anonymous memory is the process's own, looked at a hundred times a second.",
    ]


_MEMORY = ("peak_rss_bytes", "peak_anonymous_bytes")


def _settings(document: Document) -> list[str]:
    """Of each case the settings that won, and what all took when they were tried."""
    facts = document["loading"][LLAMA]["cached"]
    order = "has" if facts["repacks"] else "does not have"
    rows = []
    for sessions in document["sessions"].values():
        for case, tried in sessions[LLAMA]["tried"].items():
            ordered = sorted(tried, key=itemgetter("seconds"))
            differing = [name for name in ordered[0] if len({each[name] for each in tried}) > 1]
            rows.append((case, *(_said(each, differing) for each in (ordered[0], ordered[-1]))))
    return [
        f"llama-cpp-python {facts['version']}, K and V in f16; all tokens of a step are in one llama_batch, and each "
        f"session has K and V of its own. It {order} another order for Q8_0 weights on this CPU (repacking). All "
        "settings that can matter to a case were tried in a short burst, the best two twice; engine.json has them all:",
        "",
        *table(("case", "fastest, ms", "slowest, ms"), rows),
        "",
        f"`{facts['system']}`",
    ]


def _said(settings: Document, names: Sequence[str]) -> str:
    """Settings by name, and the time."""
    words = {
        "flash_attention": "flash attention" if settings["flash_attention"] else "no flash attention",
        "unified": "one buffer" if settings["unified"] else "a buffer for each session",
        "ubatch": f"ubatch {settings['ubatch']}",
        "repacked": "repacked" if settings["repacked"] else "not repacked",
    }
    return f"{', '.join(words[name] for name in names if name in words)}: {_ms(settings['seconds'])}"


def _how(document: Document) -> list[str]:
    plan, where = document["plan"], document["environment"]
    shape = ", ".join(f"{name} {value}" for name, value in plan["shape"].items())
    versions = ", ".join(f"{name} {version}" for name, version in where["versions"].items())
    history = ", ".join(
        f"{sessions[INT8]['history_tokens']:,} tokens at window {window}"
        for window, sessions in document["sessions"].items()
    )
    return [
        f"- {where['cpu']}, {where['num_processors']} processors, {byte_count.show(where['memory_bytes'])}; "
        f"{where['platform']}; load before {where['load_average_before']:.2f}; {versions}.",
        f"- A Qwen3 of seeded random weights in bfloat16: {shape}.",
        f"- {plan['num_threads']} threads each, a process each, one at a time: {plan['num_rounds']} rounds, in each a "
        f"burst of about {plan['burst_seconds']:g} s in every case; contestants take turns. Times are medians over "
        "rounds of a burst's median; ratios are medians over rounds of the ratio within a round, with the bootstrap's "
        "95 % interval.",
        f"- A window has its sinks in it. Kakeya's sessions have forgotten something already ({history}, and more with "
        "every burst), so that each token sees a full window; the others' hold what makes the last new token see as "
        "many, and a prefill longer than the window begins with nothing.",
        "- A decode step is the logits of the sessions and the forward pass of a token each; transformers' is a step "
        "of `generate`, and its sessions grow by a token with each step of a burst.",
        f"- {document['duration_seconds'] / 60:.0f} minutes.",
    ]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table; all columns but the first to the right."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    for cells in (header, marks, *rows):
        yield f"| {' | '.join(cells)} |"


def _keys(first_and_last: Sequence[int]) -> str:
    first, last = first_and_last
    return f"{last:,}" if first == last else f"{first:,} to {last:,}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}"


def _bytes(num_bytes: int | None) -> str:
    return "-" if num_bytes is None else byte_count.show(num_bytes)
