"""A conversation that is written down, held by the Python SDK: what the TypeScript SDK has to come to as well."""

import dataclasses
from typing import Any

from opentelemetry import context, propagate

import kakeya

_TIMES = ("prefill_seconds", "total_seconds", "op_id")
"""Differ each time."""


async def converse(address: str, script: list[dict[str, Any]], trace_context: dict[str, str]) -> list[dict[str, Any]]:
    """Each step with what it came to: tokens, events, or the error.

    Args:
        trace_context: headers of the span that its own are below.
        script: steps `{"do": "append" | "turn" | "generate" | "rewind" | "info" | "close", ...options}`.
    """
    context.attach(propagate.extract(trace_context))
    async with kakeya.AsyncClient(address) as client:
        session = await client.create_session()
        return [await _step(session, dict(step)) for step in script]


async def _step(session: kakeya.AsyncSession, step: dict[str, Any]) -> dict[str, Any]:
    do = step.pop("do")
    try:
        match do:
            case "append":
                return _plain(await session.append(step["token_ids"], logprobs=step.get("logprobs")))
            case "rewind":
                return _plain(await session.rewind(step["history_length"]))
            case "close":
                return {"final": await session.close()}
            case "turn":
                return await _heard(session.turn(step.pop("token_ids"), **step))
            case _:
                return await _heard(session.generate(**step))
    except kakeya.KakeyaError as error:
        return {"error": type(error).__name__, "reason": error.reason, "status": error.status.name}


async def _heard(generation: kakeya.AsyncGeneration) -> dict[str, Any]:
    token_ids = await generation.all()
    return {
        "token_ids": token_ids,
        "appended": generation.appended and _plain(generation.appended),
        "truncated": generation.truncated and _plain(generation.truncated),
        "details": [_plain(detail) for detail in generation.details],
        "done": generation.done and _plain(generation.done),
    }


def _plain(result: Any) -> dict[str, Any]:
    """As the TypeScript SDK writes it down: ranges and likeliest ids as lists of objects, seeds as texts."""
    found = {name: value for name, value in dataclasses.asdict(result).items() if name not in _TIMES}
    if "retained" in found:
        found["retained"] = [{"start": part.start, "end": part.stop} for part in found["retained"]]
    if "top_logprobs" in found:
        found["top_logprobs"] = [
            {"token_id": token_id, "logprob": logprob} for token_id, logprob in found["top_logprobs"].items()
        ]
    if "details" in found:
        found["details"] = [_plain(detail) for detail in result.details]
    if "seed" in found:
        found["seed"] = str(found["seed"])
    if isinstance(result, kakeya.AppendResult | kakeya.GenerateResult | kakeya.RewindResult):
        found["num_forgotten_tokens"] = result.num_forgotten_tokens
    return found
