"""What of a report is to be looked at: its page and its pictures."""

from collections.abc import Mapping
from typing import Any

from kakeya.bench import html_page
from kakeya.bench.html_page import Drawing, Section
from kakeya.bench.session import latency_picture, memory_picture, prefill_picture, tables
from kakeya.bench.session.played import Played

HTML_NAME = "report.html"


def files(document: Mapping[str, Any]) -> dict[str, bytes]:
    """The page and the pictures by their names; the same document gives the same bytes.

    Args:
        document: what `Report.document` returns, or what a report.json holds.
    """
    drawings = _drawings(document)
    sections = [*tables.findings(document), Section("Turn after turn", drawings), *tables.rest(document)]
    page = html_page.page(f"kakeya bench session: {document['model']['name']}", tables.badges(document), sections)
    return {HTML_NAME: page, **{f"{each.picture.name}.png": each.picture.png for each in drawings}}


def _drawings(document: Mapping[str, Any]) -> list[Drawing]:
    played, gates = Played.of(document), document["gates"]
    return [
        Drawing(
            latency_picture.draw(played),
            "Turn latency and time to first token of each turn, in the order of the turns",
            "Where the lines are flat, the last turn takes what the first one took. Crosses above the panels are turns "
            "that failed.",
        ),
        Drawing(
            memory_picture.draw(played),
            "KV bytes of each session and resident memory of each worker, in the order of the turns",
            "KV grows until sinks and window are full, to the byte that config.json demands, and stays there "
            f"(kv_bounded: {gates['kv_bounded']['outcome']}). The worker's process must not grow either "
            f"(rss_bounded: {gates['rss_bounded']['outcome']}).",
        ),
        Drawing(
            prefill_picture.draw(played),
            "Time to first token per new token of each turn against the length of the history before it",
            f"prefill_bounded: {gates['prefill_bounded']['outcome']}. {_sentence(gates['prefill_bounded']['reason'])}",
        ),
    ]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
