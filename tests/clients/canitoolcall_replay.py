"""Replays canitoolcall's fixtures through our parsers and judges them by its own checks; writes JSON, a row a fixture.

Run by the interpreter of an environment that has canitoolcall, with the HTTP shim's sources on the path: what is used
of those needs the standard library only.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from canitoolcall import checks
from canitoolcall.chunking import DEFAULT_STRATEGIES, ChunkStrategy, split
from canitoolcall.fixtures import Family, Fixture, load_families, load_fixtures
from canitoolcall.results import CheckResult, Observation, ParseResult, StreamAccumulator, worst_status

from kakeya_http_shim.text.reasoning import TAGS, ReasoningSplit
from kakeya_http_shim.tools.deltas import ArgumentText, CallBegun, Content
from kakeya_http_shim.tools.families import BEGINS_CALL_IN_THOUGHT, SYNTAXES
from kakeya_http_shim.tools.parser import ToolCallParser
from kakeya_http_shim.tools.syntax import OfferedTools

FAMILIES = {"qwen3-hermes": "hermes", "qwen3-xml": "qwen3-xml", "llama": "llama", "mistral": "mistral"}
"""Our names for the suite's."""

_LETTERS = tuple(ChunkStrategy("char", seed=seed) for seed in range(4))
_MARKS = {"mistral": ("[THINK]", "[/THINK]")}


def _thoughts(fixture: Fixture, family: Family) -> ReasoningSplit:
    """As the template of the fixture's model says."""
    reference = family.reference_for(fixture.models[0])
    is_older = reference is not None and reference.variant == "v11-think-text"
    return ReasoningSplit(
        enabled=family.has_reasoning,
        starts_inside=bool(re.search(r"<think>\s*$", fixture.generation_prompt or "")),
        tags=TAGS if is_older else _MARKS.get(family.slug, TAGS),
        answer_begins=BEGINS_CALL_IN_THOUGHT.get(FAMILIES[family.slug]),
    )


def _parsed(fixture: Fixture, family: Family, pieces: Iterable[str]) -> ParseResult:
    thoughts = _thoughts(fixture, family)
    parser = ToolCallParser(SYNTAXES[FAMILIES[family.slug]](OfferedTools.of(fixture.tools)))
    client = StreamAccumulator()

    def told() -> Iterator[Any]:
        for piece in pieces:
            thought, text = thoughts.push(piece)
            client.add_reasoning(thought)
            yield from parser.push(text)
        thought, text = thoughts.flush()
        client.add_reasoning(thought)
        yield from parser.push(text)
        yield from parser.finish()

    for delta in told():
        match delta:
            case Content(text):
                client.add_content(text)
            case CallBegun(index, _, name):
                client.add_tool_call(index, name=name)
            case ArgumentText(index, text):
                client.add_tool_call(index, arguments=text)
    return client.result()


def _units(text: str, marks: Iterable[str]) -> list[str]:
    """Instead of tokens, whose tokenizers lie on a hub: marks are whole, words come in pieces of up to five letters."""
    whole = "|".join(map(re.escape, sorted(marks, key=len, reverse=True)))
    return re.findall(rf"{whole}|\n+| ?\w{{1,5}}|.", text, re.DOTALL)


def _streams(fixture: Fixture, family: Family) -> dict[str, ParseResult]:
    streams = {}
    for strategy in (*DEFAULT_STRATEGIES, *_LETTERS):
        units = list(fixture.raw_output) if strategy.kind == "char" else _units(fixture.raw_output, family.markers)
        groups = split(units, strategy, special=set(family.markers))
        streams[strategy.id] = _parsed(fixture, family, ("".join(group) for group in groups))
    for cut in range(1, len(fixture.raw_output)):
        pieces = (fixture.raw_output[:cut], fixture.raw_output[cut:])
        streams[f"cut:{cut}"] = _parsed(fixture, family, pieces)
    return streams


def _row(fixture: Fixture, family: Family) -> dict[str, Any]:
    plain = _parsed(fixture, family, [fixture.raw_output])
    streams = _streams(fixture, family)
    rows: list[CheckResult] = checks.run_checks(fixture, family, Observation(plain, streams))
    reasons = {f"{row.check}: {row.detail}" for row in rows if row.status.value != "pass"}
    return {
        "id": fixture.id,
        "family": fixture.family,
        "status": worst_status(row.status for row in rows).value,
        "reasons": sorted(reasons),
        "num_streams": len(streams),
        "num_unlike_plain": sum(stream != plain for stream in streams.values()),
    }


if __name__ == "__main__":
    known = load_families()
    fixtures = load_fixtures(families=list(FAMILIES))
    json.dump([_row(fixture, known[fixture.family]) for fixture in fixtures], sys.stdout, indent=1)
