"""Requests that make sense, in terms of what the fuzzer knows: where hostile ones start from."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import Message

from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import registry_pb2, verifier_pb2
from tests.soak.fuzz.known import Known
from tests.soak.fuzz.methods import ADMIN, REGISTRY, RUNTIME, VERIFIER, Method

FUZZ_POOL, FUZZ_MODEL = "fuzz", "fuzz-model"
FUZZ_TENANT = "fuzz"
_MAYBE_SHARE = 0.25
_CLOSING_SHARE = 0.4
_BOUNDARY_SHARE = 0.3
_FORK_SHARE = 0.1
_OP_SHARE = 0.5
_NOT_OF_A_TURN = ("session_id", "expected_history_length", "resume_token_ids", "op_id")
Fields = dict[str, Any]


def valid_request(method: Method, known: Known, chance: random.Random) -> Message:
    """A request that some state of the runtime would grant."""
    names = method.request.DESCRIPTOR.fields_by_name
    always = _ALWAYS[method.service](method.name, known, chance) if method.service in _ALWAYS else {}
    fields = {name: value for name, value in always.items() if name in names}
    for name, make in _MAYBE.get(method.service, {}).items():
        if name in names and name not in fields and chance.random() < _MAYBE_SHARE:
            fields[name] = make(known, chance)
    return method.request(**fields)


def _maybe(options: Mapping[str, "Make"], known: Known, chance: random.Random) -> Fields:
    return {name: make(known, chance) for name, make in options.items() if chance.random() < _MAYBE_SHARE}


def _tokens(known: Known, chance: random.Random, at_most: int = 40) -> list[int]:
    return [chance.randrange(known.vocab_size) for _ in range(chance.randrange(1, at_most))]


def _any_session(known: Known, chance: random.Random) -> str:
    return known.session_id(chance, may_be_foreign=True)


def _own_session(known: Known, chance: random.Random) -> str:
    open_or_not = known.sessions if chance.random() < _CLOSING_SHARE else list(known.closed)
    return chance.choice(open_or_not or ["demo.none"])


def _of_runtime(method: str, known: Known, chance: random.Random) -> Fields:
    if method == "Turn":
        options = {"max_tokens": chance.randrange(1, 8), **_maybe(_MAYBE[RUNTIME], known, chance)}
        return _turn(known, chance, options)
    if method in ("TagTurn", "FindSession"):
        return _tagged(method, known, chance)
    if method in ("StoreObject", "FetchObject", "UpdateObject", "DeleteObject"):
        kept = {"id": f"object-{chance.randrange(8)}", "data": bytes(chance.randrange(100)), "ttl_seconds": 60}
        return {**kept, "version": chance.randrange(1, 4), "appends": chance.random() < 0.5}
    boundary = {"boundary": chance.randrange(100)} if chance.random() < _BOUNDARY_SHARE else {}
    return {
        "model": known.model,
        "source": api.ForkPoint(session_id=_any_session(known, chance), **boundary),
        "session_id": (_own_session if method == "CloseSession" else _any_session)(known, chance),
        "token_ids": _tokens(known, chance),
        "max_tokens": chance.randrange(1, 8),
    }


def _tagged(method: str, known: Known, chance: random.Random) -> Fields:
    """A tag of the few that there are: for a place that a session may have, or to find one."""
    tags = [bytes([chance.randrange(16)]) * 32 for _ in range(chance.randrange(1, 5))]
    if method == "FindSession":
        return {"tags": tags, "model": known.model}
    kind = chance.choice((api.PLACE_KIND_HEAD, api.PLACE_KIND_ANSWER_START, api.PLACE_KIND_ANSWER_END))
    place = api.HistoryPlace(kind=kind, history_length=chance.randrange(1, 100))
    return {
        "session_id": _any_session(known, chance),
        "place": place,
        "tags": tags,
        "op_id": f"fuzz-{chance.randrange(256)}" if kind != api.PLACE_KIND_HEAD else "",
    }


def _turn(known: Known, chance: random.Random, options: Fields) -> Fields:
    """In a session that there may be, at a place of it, or in a new one."""
    generate = api.GenerateRequest.DESCRIPTOR.fields_by_name
    said = {name: value for name, value in options.items() if name in generate and name not in _NOT_OF_A_TURN}
    if chance.random() < _OP_SHARE:
        said["op_id"] = f"fuzz-{chance.randrange(256)}"
    spans = [api.TokenSpan(token_ids=_tokens(known, chance)) for _ in range(chance.randrange(3))]
    turn: Fields = {"spans": spans, "generate": api.GenerateRequest(**said), "close": chance.random() < _CLOSING_SHARE}
    if chance.random() < _BOUNDARY_SHARE:
        request_id = f"fuzz-{chance.randrange(256)}"
        return turn | {"create": api.CreateSessionRequest(model=known.model, request_id=request_id, ephemeral=True)}
    boundary: Fields = {"boundary": chance.randrange(100), "request_id": f"fuzz-{chance.randrange(256)}"}
    place = boundary if chance.random() < _BOUNDARY_SHARE else {}
    return turn | {"session": api.TurnPlace(session_id=_any_session(known, chance), **place)}


def _of_verifier(method: str, known: Known, chance: random.Random) -> Fields:
    lane = known.lane(chance)
    named: Fields = {"session_id": lane.session_id, "epoch": lane.epoch, "history_length": lane.history_length}
    if method == "OpenSession":
        fresh = {"session_id": f"fuzz.{chance.getrandbits(64):016x}", "epoch": chance.randrange(1, 4)}
        return fresh | ({"fork_from": verifier_pb2.ForkSource(**named)} if chance.random() < _FORK_SHARE else {})
    amounts = {"max_tokens": chance.randrange(1, 8), "num_tokens": chance.randrange(100)}
    return named | amounts | {"token_ids": _tokens(known, chance)}


def _of_registry(_: str, known: Known, chance: random.Random) -> Fields:
    number, num_lanes, lane_bytes = chance.randrange(4), chance.randrange(1, 5), 4096
    names = {"pool": FUZZ_POOL, "worker_id": f"fuzz-worker-{number}", "incarnation": f"fuzz-incarnation-{number}"}
    what = {"model": FUZZ_MODEL, "address": chance.choice(known.addresses), "backend": "torch", "dtype": "bfloat16"}
    sizes = {"slab_bytes": num_lanes * lane_bytes, "lane_bytes": lane_bytes, "num_lanes": num_lanes, "num_threads": 1}
    shape = {"sink": 4, "window": 64, "kv_bytes_per_token": 64, "vocab_size": known.vocab_size}
    numerics = {"weights": "int8", "fingerprint": "f" * 64, "model_digest": "d" * 64, "exact": True}
    lane: Fields = {"session_id": _any_session(known, chance), "epoch": chance.randrange(1, 3), "history_length": 100}
    retained = [registry_pb2.LaneReport.Range(start=0, end=4)]
    use = {"kv_live_bytes": 4096, "num_lanes_in_use": 1, "rss_bytes": 256 << 20, "complete": chance.random() < 0.5}
    lanes = {"lanes": [registry_pb2.LaneReport(**lane, kv_live_bytes=4096, retained=retained)]}
    return {"contract_version": chance.randrange(1, 3)} | names | what | sizes | shape | numerics | use | lanes


def _of_admin(method: str, known: Known, chance: random.Random) -> Fields:
    if method == "ListSessions":
        return {}
    return {
        "tenant": f"{FUZZ_TENANT}-{chance.randrange(4)}",
        "scopes": chance.choice(([], [admin_pb2.SCOPE_SESSIONS], [admin_pb2.SCOPE_ADMIN])),
        "pool": FUZZ_POOL,
        "key_id": chance.choice(list(known.keys) or ["0" * 12]),
        "token_id": chance.choice(list(known.tokens) or ["0" * 12]),
        "session_id": _own_session(known, chance),
    }


Make = Callable[[Known, random.Random], Any]


def _below(end: int, start: int = 0) -> Make:
    return lambda _, chance: chance.randrange(start, end)


def _between(low: float, high: float) -> Make:
    return lambda _, chance: chance.uniform(low, high)


def _is(value: Any) -> Make:
    return lambda _, chance: value


# Of all that a service's requests may have, by the name of the field: those that have it always,
_ALWAYS: Mapping[str, Callable[[str, Known, random.Random], Fields]] = {
    RUNTIME: _of_runtime,
    VERIFIER: _of_verifier,
    REGISTRY: _of_registry,
    ADMIN: _of_admin,
}
# and the others, in a share of the requests each.
_MAYBE: Mapping[str, Mapping[str, Make]] = {
    RUNTIME: {
        "client_label": _is("fuzz"),
        "eos_token_ids": _is([1, 2]),
        "request_id": lambda _, chance: f"fuzz-{chance.randrange(256)}",
        "sink": _below(8),
        "window": _below(64, start=1),
        "pin": _below(8),
        "on_overflow": _is(api.OVERFLOW_POLICY_REFUSE),
        "ttl_seconds": _below(4, start=1),
        "inexact_resume": _is(True),
        "fork_from": lambda known, chance: api.ForkPoint(session_id=_any_session(known, chance)),
        "page_size": _below(1_200),
        "target_length": _below(100),
        "seed": lambda _, chance: chance.getrandbits(64),
        "temperature": _between(0, 2),
        "top_p": _between(0.1, 1),
        "top_k": _below(50),
        "min_p": _between(0, 1),
        "presence_penalty": _between(-2, 2),
        "frequency_penalty": _between(-2, 2),
        "logit_bias": lambda known, chance: {token: chance.uniform(-5, 5) for token in _tokens(known, chance, 5)},
        "logprobs": _below(21),
        "repetition_penalty": _between(0.1, 2),
        "min_tokens": _below(8),
        "ignore_eos": _is(True),
        "grammar": lambda _, chance: chance.choice(
            [api.Grammar(regex="[a-z]+"), api.Grammar(json_schema='{"type": "object"}'), api.Grammar(lark="start: /a/")]
        ),
        "reasoning": _is(api.Reasoning(end_token_ids=[7], max_tokens=3)),
        "stop_token_sequences": lambda known, chance: [api.TokenSequence(token_ids=_tokens(known, chance, 3))],
    },
    VERIFIER: {
        "sink": _below(8),
        "window": _below(64, start=1),
        "tenant": _is("fuzz"),
        "target_length": _below(100),
        "sampling": lambda _, chance: verifier_pb2.Sampling(
            seed=chance.getrandbits(64), temperature=chance.uniform(0, 2), top_p=1.0
        ),
        "acknowledges": _is(True),
        "eos_token_ids": _is([1]),
        "logprobs": _is(3),
        "min_tokens": _is(1),
        "ignore_eos": _is(True),
        "grammar": _is(verifier_pb2.Grammar(regex="[a-z]+")),
        "reasoning": _is(verifier_pb2.Reasoning(end_token_ids=[7], max_tokens=3)),
    },
    ADMIN: {
        "label": _is("fuzz"),
        "expires_in_seconds": _is(60),
        "worker_id": _is("fuzz-worker-0"),
        "model": _is(FUZZ_MODEL),
        "quota": lambda _, chance: admin_pb2.Quota(
            max_sessions=chance.randrange(3), tokens_per_minute=chance.randrange(1_000)
        ),
        "tenant": _is(FUZZ_TENANT),
        "pool": lambda known, _: known.model,
        "page_size": _below(1_200),
    },
}
