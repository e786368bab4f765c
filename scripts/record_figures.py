"""Takes what benches found into docs/figures.json, and writes it into README and docs.

    python scripts/record_figures.py FOLDER      what `make figures` measured; what is not in it stays as it is
    python scripts/record_figures.py             writes the pages anew from docs/figures.json

A page names a figure behind its number, `1.02<!-- session.prefill_ratio -->`, and a table between
`<!-- table: engine -->` and `<!-- end -->`.
"""

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures.json"
PICTURE = ROOT / "docs" / "flat.png"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FIGURE = re.compile(r"(?P<text>\d[\d,.]*)<!-- (?P<name>\w+\.\w+) -->")
_TABLE = re.compile(r"(?P<start><!-- table: (?P<name>\w+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)

Document = Mapping[str, Any]
Figures = dict[str, str]
Rows = list[list[str]]
Found = tuple[Figures, Rows]

_CASES = {
    "decode_1": "a token of 1 session, 64 tokens in sight",
    "decode_8": "a token of each of 8 sessions",
    "prefill_256": "a prefill of 256 tokens",
    "decode_1_w2048": "a token of 1 session, 2,048 tokens in sight",
    "decode_8_w2048": "a token of each of 8 sessions",
    "prefill_64_w2048": "a prefill of 64 tokens",
}
_ENGINES = {
    "Kakeya int8": "Kakeya int8, exact",
    "Kakeya bfloat16": "Kakeya bfloat16",
    "transformers": "transformers bfloat16",
    "llama.cpp": "llama.cpp Q8_0",
}
_PLAYERS = {
    "kakeya": "Kakeya over gRPC, 4 + 1,020 tokens in sight, int8 exact",
    "http shim": "Kakeya over HTTP, whose client (openai) sends the whole conversation each turn",
    "http responses": "Kakeya over HTTP, by responses, each behind the one before",
    "transformers": "transformers, prefilled anew each turn, float32",
    "llama.cpp": "llama.cpp's server, its prompt cache, a context for all of it, Q8_0",
    "llama.cpp full": "llama.cpp's server, a context of 2,048 that its client keeps to",
}


def session(document: Document) -> Found:
    prefill = document["gates"]["prefill_bounded"]["figures"]
    plateau = max(turn["kv_live_bytes"] for turn in document["turns"])
    return {
        "num_turns": f"{len(document['turns']):,}",
        "kv_plateau_bytes": f"{plateau:,}",
        "prefill_ratio": f"{prefill['ratio']:.2f}",
        "prefill_ratio_low": f"{prefill['low']:.2f}",
        "prefill_ratio_high": f"{prefill['high']:.2f}",
    }, []


def engine(document: Document) -> Found:
    cases = {case["name"]: case for case in document["cases"]}
    figures = {name: f"{case['llama_ratio']['estimate']:.1f}" for name, case in cases.items()}
    floor = document["floor"]
    figures["floor_ratio"] = f"{floor['step_seconds'] / floor['seconds']:.1f}"
    figures["memory_gb_per_second"] = f"{floor['bytes_per_second'] / 1e9:.0f}"
    rows = [["", *_ENGINES.values(), "llama.cpp / int8"]]
    for name, label in _CASES.items():
        times = [_milliseconds(cases[name]["seconds"][contestant]) for contestant in _ENGINES]
        rows.append([label, *times, figures[name]])
    return figures, rows


def compare(document: Document) -> Found:
    marks = document["marks"]
    rows = [["", *(f"turn {mark}" for mark in marks), "memory, before and at the end"]]
    figures = {}
    for player in document["players"]:
        times = [player["marks"][str(mark)]["time_to_first_token_s"] for mark in marks]
        name = re.sub(r"\W", "_", player["name"]).lower()
        figures[f"{name}_first_ms"], figures[f"{name}_last_ms"] = map(_milliseconds, (times[0], times[-1]))
        if long := player.get("long_chat"):
            figures[f"{name}_cpu_ms"] = _milliseconds(statistics.median(long["cpu_seconds"]))
        memory = player["rss_bytes"]
        rows.append(
            [_PLAYERS[player["name"]], *map(_milliseconds, times), f"{_size(memory['start'])}, {_size(memory['end'])}"]
        )
    return figures, rows


def pauses(document: Document) -> Found:
    return {
        f"{name}_{percentile}_seconds": f"{document['percentiles'][name][percentile]:.2g}"
        for name in ("alone", "killed", "stopped")
        for percentile in ("p50", "p95")
    } | {"num_trials": str(len(document["killed"]))}, []


_DRAWN = {
    "kakeya": "Kakeya",
    "llama.cpp": "llama.cpp, its prompt cache",
    "transformers": "prefilled anew each turn (transformers)",
}
_FEW = 20
"""A player that is asked at some turns only has dots there."""

BENCHES: dict[str, tuple[str, str, Callable[[Document], Found]]] = {
    "session": ("make bench-qwen3", "session/report.json", session),
    "engine": ("make bench-engine", "engine/engine.json", engine),
    "compare": ("make bench-compare", "compare/compare.json", compare),
    "pauses": ("make bench-pauses", "pauses.json", pauses),
}
"""By the name that a figure begins with: what measures it, the file that it writes, what is read of that."""


def recorded(folder: Path, before: Document) -> dict[str, Any]:
    """`before`, with what the folder's documents say; raises ValueError where it has none of them."""
    found: dict[str, Any] = {part: dict(before.get(part, {})) for part in ("runs", "figures", "tables")}
    taken = {name: folder / file for name, (_, file, _) in BENCHES.items() if (folder / file).is_file()}
    if not taken:
        raise ValueError(f"{folder} has none of {', '.join(file for _, file, _ in BENCHES.values())}")
    for name, path in taken.items():
        command, _, read = BENCHES[name]
        document = json.loads(path.read_text())
        figures, rows = read(document)
        found["figures"] = {key: value for key, value in found["figures"].items() if not key.startswith(f"{name}.")}
        found["figures"] |= {f"{name}.{key}": value for key, value in figures.items()}
        if rows:
            found["tables"][name] = rows
        found["runs"][name] = _run(command, document, path)
    return found


def _run(command: str, document: Document, path: Path) -> dict[str, object]:
    where = document["environment"]
    date = document.get("written_at") or _modified(path)
    return {"command": command, "date": date[:10], "cpu": where["cpu"], "num_processors": where["num_processors"]}


def _modified(path: Path) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()


def written(page: str, found: Document) -> str:
    """A page with the figures and tables that it names; raises KeyError: there is none of that name."""
    page = FIGURE.sub(lambda match: f"{found['figures'][match['name']]}<!-- {match['name']} -->", page)

    def table(match: re.Match[str]) -> str:
        run = found["runs"][match["name"]]
        head = f"`{run['command']}`, {run['date']}, {run['num_processors']} processors of {run['cpu']}:\n\n"
        return match["start"] + head + "\n".join(_lines(found["tables"][match["name"]])) + "\n" + match["end"]

    return _TABLE.sub(table, page)


def draw(document: Document) -> None:
    """The picture of README: what each turn costs, and what the conversation takes, by turn."""
    import matplotlib.pyplot as plt

    names = [player["name"] for player in document["players"] if player["name"] in _DRAWN]
    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
    for name in names:
        turns = [turn for turn in document["turns"] if turn["player"] == name]
        at = [turn["index"] for turn in turns]
        kv = [(turn["kv_live_bytes"] or turn["kv_computed_bytes"]) / 2**20 for turn in turns]
        how = {"label": _DRAWN[name], "marker": "o" if len(turns) < _FEW else None, "linewidth": 1.3}
        times.plot(at, [turn["time_to_first_token_seconds"] for turn in turns], **how)
        memory.plot(at, kv, **how)
    times.set(yscale="log", xlabel="turn of the conversation", ylabel="time to the first token (s)")
    memory.set(xlabel="turn of the conversation", ylabel="KV of the conversation (MiB)")
    for axis in (times, memory):
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
    memory.legend(frameon=False)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    head, *body = rows
    for row in (head, ["---", *["---:"] * (len(head) - 1)], *body):
        yield "| " + " | ".join(row) + " |"


def _milliseconds(seconds: float) -> str:
    """Three digits of it."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.0f} MiB" if num_bytes < 2**30 else f"{num_bytes / 2**30:.1f} GiB"


def main(folders: Sequence[str]) -> int:
    found = json.loads(FIGURES.read_text()) if FIGURES.is_file() else {}
    for folder in map(Path, folders):
        try:
            found = recorded(folder, found)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        if (compared := folder / "compare" / "compare.json").is_file():
            draw(json.loads(compared.read_text()))
    FIGURES.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")
    for page in PAGES:
        try:
            page.write_text(written(page.read_text(), found))
        except KeyError as error:
            print(f"{page.name} names {error}, which is not measured yet", file=sys.stderr)
            return 1
    subprocess.run(["git", "diff", "--stat", "--", "docs", "README.md"], cwd=ROOT, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
