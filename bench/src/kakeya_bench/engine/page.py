"""What a report says and shows: a summary for the terminal, a page with pictures for everything."""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from kakeya_bench.engine.contestants import INT8, LLAMA, LLAMA_Q8_KV
from kakeya_bench.engine.plan import DECODE, PREFILL
from kakeya_bench.report import blocks, page, pictures
from kakeya_bench.report.blocks import Figure, Section, Table
from kakeya_bench.report.panels import INK, Level, Line, Panel, Ticks
from kakeya_bench.report.quantities import Bytes, Seconds, show

JSON_NAME = "engine.json"
PART_NAME = "measured.json"
"""What a run that is not over has measured."""
_TITLE = "The engine beside transformers and llama.cpp"
_NUMBERS = {DECODE: "sessions that decode a token each", PREFILL: "tokens of a prefill"}
_MEMORY = {"peak_rss_bytes": "peak RSS", "peak_anonymous_bytes": "peak anonymous"}
_Document = Mapping[str, Any]


def summary(document: _Document) -> tuple[str, list[Section]]:
    """What is printed at the end of a run."""
    return _TITLE, [_conclusions(document), _times(document), _memory(document)]


def files(document: _Document) -> dict[str, bytes]:
    """The page and the pictures by their names; the same document gives the same bytes."""
    sections = [
        _conclusions(document),
        Section("Beside llama.cpp", [_figure(document, kind) for kind in (DECODE, PREFILL)]),
        _times(document),
        _memory(document),
        _settings(document),
        *_rest(document),
    ]
    return page.files(_TITLE, [blocks.worst(_gates(document))], sections, json_name=JSON_NAME)


def _gates(document: _Document) -> dict[str, _Document]:
    return {verdict["gate"]: verdict for verdict in document["verdicts"]}


def _conclusions(document: _Document) -> Section:
    floor = document["floor"]
    return Section(
        "Gates",
        [
            "How many times as long llama.cpp (Q8_0) takes as Kakeya (int8), and others as Kakeya with K and V in int8 "
            "(int8_kv); a decode step in times of reading its weights once.",
            blocks.gates(_gates(document)),
            f"To read {floor['weight_bytes']:,} bytes of weights once takes {_ms(floor['seconds'])} at "
            f"{floor['bytes_per_second'] / 1e9:.1f} GB/s. A step of one session takes {_ms(floor['step_seconds'])}.",
        ],
    )


def _figure(document: _Document, kind: str) -> Figure:
    """How fast everybody is beside llama.cpp, a panel a window."""
    cases = [case for case in document["cases"] if case["kind"] == kind]
    panels = [
        _panel(document, [case for case in cases if case["window"] == window], window)
        for window in document["plan"]["windows"]
    ]
    numbers = sorted({case["number"] for case in cases})
    picture = pictures.draw(
        kind,
        f"{kind.capitalize()}: how many times as fast as llama.cpp Q8_0",
        panels,
        x=_NUMBERS[kind],
        ticks=Ticks(numbers, [str(number) for number in numbers]),
    )
    return Figure(
        picture,
        f"Speed of each contestant in times of llama.cpp's, by {_NUMBERS[kind]}",
        "Above the dashed line a contestant is faster than llama.cpp. A black point is the least that Kakeya's int8 is "
        "bound to.",
    )


def _panel(document: _Document, cases: Sequence[_Document], window: int) -> Panel:
    bounds = {name: gate["figures"]["bound"] for name, gate in _gates(document).items()}
    speeds = [
        Line(name, [(case["number"], case["seconds"][LLAMA] / case["seconds"][name]) for case in cases])
        for name in document["loading"]
        if name != LLAMA
    ]
    bound = [(case["number"], bounds[case["name"]]) for case in cases if case["name"] in bounds]
    return Panel(
        f"each token sees {window:,} keys",
        float,
        [*speeds, Line("bound of int8", bound, color=INK, style="none")],
        levels=[Level("llama.cpp", 1.0)],
    )


def _times(document: _Document) -> Section:
    contestants, chunk = list(document["loading"]), document["large_chunk"]
    rows = [
        [
            f"{case['kind']} {case['number']}, window {case['window']:,}",
            *(_keys(case["context"][whose]["keys"]) for whose in ("kakeya", "others")),
            *(Seconds(case["seconds"][name]) if name in case["seconds"] else None for name in contestants),
            "{estimate:.2f} ({low:.2f} to {high:.2f})".format(**case["llama_ratio"]),
        ]
        for case in document["cases"]
    ]
    chunks = [[case, *map(Seconds, seconds.values())] for case, seconds in chunk["seconds"].items()]
    return Section(
        "Times",
        [
            "A decode step is the logits of so many sessions and the forward pass of a token each; a prefill is of so "
            "many tokens of one session. Times are medians over rounds of a burst's median; ratios are medians over "
            "rounds of the ratio within a round, with the bootstrap's 95 % interval.",
            Table(["", "keys: Kakeya", "keys: others", *contestants, "llama.cpp / int8"], rows),
            f"Kakeya's prefills are in chunks of {document['plan']['chunk']} tokens, a worker's default. In chunks of "
            f"{chunk['chunk']}:",
            Table(["", *next(iter(chunk["seconds"].values()))], chunks),
        ],
    )


def _memory(document: _Document) -> Section:
    serving = document["memory"]
    rows = []
    for name, loads in document["loading"].items():
        looked_at = (loads["cold"], loads["cached"], serving[name])
        rows.append(
            [
                name,
                *(Seconds(load["seconds"]) for load in looked_at[:2]),
                *(None if each[peak] is None else Bytes(each[peak]) for each in looked_at for peak in _MEMORY),
            ]
        )
    peaks = [f"{when}: {what}" for when in ("cold", "cached", serving["case"]) for what in _MEMORY.values()]
    return Section(
        "Loading and memory",
        [
            "A load ends with the logits after one token; imports are not in it. Before a cold load the system was "
            "asked to read the model's files from disk, and no int8 weights were kept; at a cached load they were, and "
            f"the files were in the file cache. {serving['case']}: while full sessions decode in a process of their "
            "own; transformers holds one session more, which the others are copied from.",
            Table(["", "cold load", "cached load", *peaks], rows),
        ],
    )


def _settings(document: _Document) -> Section:
    """Of each case the settings that won and that lost, and what they took when they were tried."""
    facts = document["loading"][LLAMA]["cached"]
    rows = []
    for sessions in document["sessions"].values():
        for name in (LLAMA, LLAMA_Q8_KV):
            for case, tried in sessions[name]["tried"].items():
                ordered = sorted(tried, key=itemgetter("seconds"))
                rows.append([case, *(cell for each in (ordered[0], ordered[-1]) for cell in _said(each))])
    return Section(
        "How llama.cpp ran",
        [
            f"llama-cpp-python {facts['version']}; {facts['system']}. It "
            f"{'has' if facts['repacks'] else 'does not have'} another order for Q8_0 weights on this CPU (repacking). "
            "All settings that can matter to a case were tried in a short burst, the best two twice.",
            Table(["case", "fastest", "took", "slowest", "took"], rows),
        ],
    )


def _said(tried: _Document) -> tuple[str, Seconds]:
    words = (f"{name.replace('_', ' ')} {show(value)}" for name, value in tried.items() if name != "seconds")
    return ", ".join(words), Seconds(tried["seconds"])


def _rest(document: _Document) -> list[Section]:
    histories = {
        f"history of Kakeya's sessions at window {window}, tokens": sessions[INT8]["history_tokens"]
        for window, sessions in document["sessions"].items()
    }
    return [
        blocks.facts("Plan", {**document["plan"], **histories, "duration_seconds": document["duration_seconds"]}),
        blocks.facts("Environment", document["environment"]),
    ]


def _keys(first_and_last: Sequence[int]) -> str:
    first, last = first_and_last
    return f"{last:,}" if first == last else f"{first:,} to {last:,}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms"
