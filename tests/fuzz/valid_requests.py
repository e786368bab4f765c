"""Requests that make sense, in terms of what the fuzzer knows: where hostile ones start from."""

import random
from typing import Any

from google.protobuf.message import Message

from kakeya_stubs.admin.v1 import admin_pb2
from kakeya_stubs.v1 import runtime_pb2 as api
from kakeya_stubs.worker.v1 import registry_pb2, verifier_pb2
from tests.fuzz.known import Known
from tests.fuzz.methods import ADMIN, REGISTRY, RUNTIME, VERIFIER, Method

FUZZ_POOL, FUZZ_MODEL = "fuzz", "fuzz-model"
FUZZ_TENANT = "fuzz"
_NUM_REQUEST_IDS = 256
_CLOSING_SHARE = 0.4


def valid_request(method: Method, known: Known, chance: random.Random) -> Message:
    """A request that some state of the runtime would grant."""
    fields = _FIELDS.get((method.service, method.name), _nothing)(known, chance)
    return method.request(**fields)


Fields = dict[str, Any]


def _nothing(known: Known, chance: random.Random) -> Fields:
    return {}


def _tokens(known: Known, chance: random.Random, at_most: int = 40) -> list[int]:
    return [chance.randrange(known.vocab_size) for _ in range(chance.randrange(1, at_most))]


def _maybe(chance: random.Random, share: float = 0.3, **fields: Any) -> Fields:
    return {name: value for name, value in fields.items() if chance.random() < share}


def _create(known: Known, chance: random.Random) -> Fields:
    return {"model": known.model} | _maybe(
        chance,
        0.2,
        client_label="fuzz",
        eos_token_ids=[1, 2],
        request_id=f"fuzz-{chance.randrange(_NUM_REQUEST_IDS)}",
        sink=chance.randrange(8),
        window=chance.randrange(1, 64),
        pin=chance.randrange(8),
        on_overflow=api.OVERFLOW_POLICY_REFUSE,
        ttl_seconds=chance.randrange(1, 4),
        inexact_resume=True,
        fork_from=api.ForkPoint(session_id=known.session_id(chance, may_be_foreign=True)),
    )


def _fork(known: Known, chance: random.Random) -> Fields:
    source = api.ForkPoint(
        session_id=known.session_id(chance, may_be_foreign=True), **_maybe(chance, boundary=chance.randrange(100))
    )
    request_id = f"fuzz-{chance.randrange(_NUM_REQUEST_IDS)}"
    return {"source": source} | _maybe(
        chance,
        0.2,
        client_label="fuzz",
        eos_token_ids=[1, 2],
        request_id=request_id,
        ttl_seconds=chance.randrange(1, 4),
        inexact_resume=True,
    )


def _session(known: Known, chance: random.Random) -> Fields:
    return {"session_id": known.session_id(chance, may_be_foreign=True)}


def _append(known: Known, chance: random.Random) -> Fields:
    return _session(known, chance) | {"token_ids": _tokens(known, chance)}


def _generate(known: Known, chance: random.Random) -> Fields:
    return (
        _session(known, chance)
        | {"max_tokens": chance.randrange(1, 8)}
        | _maybe(
            chance,
            seed=chance.getrandbits(64),
            temperature=chance.uniform(0, 2),
            top_p=chance.uniform(0.1, 1),
            top_k=chance.randrange(50),
            min_p=chance.random(),
            presence_penalty=chance.uniform(-2, 2),
            frequency_penalty=chance.uniform(-2, 2),
            logit_bias={token: chance.uniform(-5, 5) for token in _tokens(known, chance, 5)},
            logprobs=chance.randrange(21),
            stop_token_sequences=[api.TokenSequence(token_ids=_tokens(known, chance, 3))],
        )
    )


def _open_lane(known: Known, chance: random.Random) -> Fields:
    fresh = {"session_id": f"fuzz.{chance.getrandbits(64):016x}", "epoch": chance.randrange(1, 4)}
    source = verifier_pb2.ForkSource(**_lane(known, chance), history_length=known.lane(chance).history_length)
    if chance.random() < 0.1:
        return fresh | {"fork_from": source}
    return fresh | _maybe(chance, 0.2, sink=chance.randrange(8), window=chance.randrange(1, 64), tenant="fuzz")


def _lane(known: Known, chance: random.Random) -> Fields:
    lane = known.lane(chance)
    return {"session_id": lane.session_id, "epoch": lane.epoch}


def _lane_append(known: Known, chance: random.Random) -> Fields:
    lane = known.lane(chance)
    where = {"session_id": lane.session_id, "epoch": lane.epoch, "history_length": lane.history_length}
    return where | {"token_ids": _tokens(known, chance)}


def _lane_generate(known: Known, chance: random.Random) -> Fields:
    fields = _lane_append(known, chance) | {"max_tokens": chance.randrange(1, 8)}
    fields.pop("token_ids")
    sampling = verifier_pb2.Sampling(seed=chance.getrandbits(64), temperature=chance.uniform(0, 2), top_p=1.0)
    return fields | _maybe(chance, sampling=sampling, acknowledges=True, eos_token_ids=[1], logprobs=3)


def _acknowledge(known: Known, chance: random.Random) -> Fields:
    return _lane(known, chance) | {"num_tokens": chance.randrange(100)}


def _worker(known: Known, chance: random.Random) -> Fields:
    number = chance.randrange(4)
    return {"pool": FUZZ_POOL, "worker_id": f"fuzz-worker-{number}", "incarnation": f"fuzz-incarnation-{number}"}


def _join(known: Known, chance: random.Random) -> Fields:
    num_lanes, lane_bytes = chance.randrange(1, 5), 4096
    return _worker(known, chance) | {
        "contract_version": 1,
        "model": FUZZ_MODEL,
        "address": chance.choice(known.addresses),
        "backend": "torch",
        "dtype": "bfloat16",
        "slab_bytes": num_lanes * lane_bytes,
        "lane_bytes": lane_bytes,
        "num_lanes": num_lanes,
        "sink": 4,
        "window": 64,
        "kv_bytes_per_token": 64,
        "vocab_size": known.vocab_size,
        "num_threads": 1,
        "weights": "int8",
        "fingerprint": "f" * 64,
        "model_digest": "d" * 64,
        "exact": True,
    }


def _heartbeat(known: Known, chance: random.Random) -> Fields:
    report = registry_pb2.LaneReport(
        session_id=known.session_id(chance, may_be_foreign=True),
        epoch=chance.randrange(1, 3),
        history_length=100,
        kv_live_bytes=4096,
        retained=[registry_pb2.LaneReport.Range(start=0, end=4)],
    )
    return _worker(known, chance) | {
        "kv_live_bytes": 4096,
        "num_lanes_in_use": 1,
        "rss_bytes": 256 << 20,
        "lanes": [report],
        "complete": chance.random() < 0.5,
    }


def _create_key(known: Known, chance: random.Random) -> Fields:
    tenant = f"{FUZZ_TENANT}-{chance.randrange(4)}"
    scopes = chance.choice(([], [admin_pb2.SCOPE_SESSIONS], [admin_pb2.SCOPE_ADMIN]))
    return {"tenant": tenant, "scopes": scopes} | _maybe(chance, label="fuzz", expires_in_seconds=60)


def _create_token(known: Known, chance: random.Random) -> Fields:
    return {"pool": FUZZ_POOL} | _maybe(
        chance, worker_id="fuzz-worker-0", model=FUZZ_MODEL, label="fuzz", expires_in_seconds=60
    )


def _revoke_key(known: Known, chance: random.Random) -> Fields:
    return {"key_id": chance.choice(known.keys or ["0" * 12])}


def _revoke_token(known: Known, chance: random.Random) -> Fields:
    return {"token_id": chance.choice(known.tokens or ["0" * 12])}


def _set_quota(known: Known, chance: random.Random) -> Fields:
    quota = admin_pb2.Quota(max_sessions=chance.randrange(3), tokens_per_minute=chance.randrange(1_000))
    return {"tenant": f"{FUZZ_TENANT}-{chance.randrange(4)}"} | _maybe(chance, 0.5, quota=quota)


def _list_sessions(known: Known, chance: random.Random) -> Fields:
    return _maybe(chance, tenant=FUZZ_TENANT, pool=known.model, page_size=chance.randrange(1_200))


def _own_session(known: Known, chance: random.Random) -> Fields:
    open_or_not = known.sessions if chance.random() < _CLOSING_SHARE else list(known.closed)
    return {"session_id": chance.choice(open_or_not or ["demo.none"])}


_FIELDS = {
    (RUNTIME, "CreateSession"): _create,
    (RUNTIME, "ForkSession"): _fork,
    (RUNTIME, "ListSessions"): lambda known, chance: _maybe(chance, page_size=chance.randrange(1_200)),
    (RUNTIME, "AppendTokens"): _append,
    (RUNTIME, "Generate"): _generate,
    (RUNTIME, "CloseSession"): _own_session,
    (RUNTIME, "GetSessionInfo"): _session,
    (VERIFIER, "OpenSession"): _open_lane,
    (VERIFIER, "Append"): _lane_append,
    (VERIFIER, "Generate"): _lane_generate,
    (VERIFIER, "Stop"): _lane,
    (VERIFIER, "Acknowledge"): _acknowledge,
    (VERIFIER, "ReadLane"): _lane,
    (VERIFIER, "WriteLane"): _lane,
    (VERIFIER, "CloseSession"): _lane,
    (REGISTRY, "Join"): _join,
    (REGISTRY, "Heartbeat"): _heartbeat,
    (REGISTRY, "Leave"): _worker,
    (ADMIN, "CreateKey"): _create_key,
    (ADMIN, "RevokeKey"): _revoke_key,
    (ADMIN, "CreateToken"): _create_token,
    (ADMIN, "RevokeToken"): _revoke_token,
    (ADMIN, "SetQuota"): _set_quota,
    (ADMIN, "ListSessions"): _list_sessions,
    (ADMIN, "CloseSession"): _own_session,
}
