"""Who may come in, shown on real processes; and that no secret is ever written down."""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis
from google.protobuf.message import Message

import kakeya
from kakeya_router.store.access.credentials import Kind, id_of, mint
from kakeya_router.store.keys import new_session_id
from kakeya_router.store.session_record import PoolName
from kakeya_stubs.admin.v1 import admin_pb2, admin_pb2_grpc
from kakeya_stubs.v1 import runtime_pb2, runtime_pb2_grpc
from kakeya_stubs.worker.v1 import registry_pb2, registry_pb2_grpc
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import Runtime, asking_for_keys, bearer, runtime, wait_until

RUNTIME = runtime_pb2.DESCRIPTOR.services_by_name["RuntimeService"]
ON_A_SESSION = [method for method in RUNTIME.methods if "session_id" in method.input_type.fields_by_name]
FIELDS: dict[str, dict[str, Any]] = {
    "AppendTokens": {"token_ids": [1]},
    "FindSession": {"tags": [bytes(32)]},
    "Generate": {"max_tokens": 1},
    "TagTurn": {"place": {"kind": runtime_pb2.PLACE_KIND_HEAD, "history_length": 1}, "tags": [bytes(32)]},
}
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "no such session: unknown, closed or expired")
NO_KEY = (grpc.StatusCode.UNAUTHENTICATED, "no key, or one that is unknown, revoked or expired")
NO_TOKEN = (grpc.StatusCode.UNAUTHENTICATED, "no join token, or one that is unknown, revoked or expired")

Refusal = tuple[grpc.StatusCode, str]


@dataclass
class Secured:
    """A runtime that asks for keys, and all that was said to those whom it refused."""

    runtime: Runtime
    channel: grpc.Channel
    errors: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self.channel)
        self.public: Any = runtime_pb2_grpc.RuntimeServiceStub(self.channel)
        self.registry: Any = registry_pb2_grpc.RegistryServiceStub(self.channel)
        self.secrets += [value for name, value in self.runtime.environment.items() if value.startswith("kakeya_")]

    def key(self, tenant: str, **fields: Any) -> admin_pb2.CreateKeyResponse:
        made = self._as_admin(self.admin.CreateKey, admin_pb2.CreateKeyRequest(tenant=tenant, **fields))
        self.secrets.append(made.secret)
        return made

    def token(self, **fields: Any) -> admin_pb2.CreateTokenResponse:
        made = self._as_admin(self.admin.CreateToken, admin_pb2.CreateTokenRequest(**fields))
        self.secrets.append(made.secret)
        return made

    def revoke_key(self, key_id: str) -> None:
        self._as_admin(self.admin.RevokeKey, admin_pb2.RevokeKeyRequest(key_id=key_id))

    def revoke_token(self, token_id: str) -> None:
        self._as_admin(self.admin.RevokeToken, admin_pb2.RevokeTokenRequest(token_id=token_id))

    def expire(self, credential: str) -> None:
        """Has the time of a key or a token be over."""
        with redis.Redis.from_url(self.runtime.redis.url, protocol=2) as state:
            assert state.hset(f"kakeya:{{access}}:{credential}", "expires_ms", 1) == 0, "there is none"

    def refusal(self, call: Callable[..., Any], request: Message, secret: str) -> Refusal | None:
        """What a refused call shows; None: it was let through."""
        try:
            answer = call(request, timeout=60, metadata=bearer(secret))
            list(answer) if hasattr(answer, "__next__") else answer
        except grpc.RpcError as error:
            self.errors.append(f"{error} {error.details()} {error.trailing_metadata()}")
            return error.code(), error.details() or ""
        return None

    def session(self, secret: str) -> str:
        with kakeya.Client(self.runtime.address, api_key=secret) as client:
            session = client.create_session()
            session.append([1, 2])
            return session.id

    def info(self, session_id: str, secret: str) -> Refusal | None:
        request = runtime_pb2.GetSessionInfoRequest(session_id=session_id)
        return self.refusal(self.public.GetSessionInfo, request, secret)

    def _as_admin(self, call: Callable[..., Any], request: Message) -> Any:
        return call(request, timeout=60, metadata=self.runtime.admin_metadata)


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def secured(model: Path, tmp_path_factory: pytest.TempPathFactory, receiver: OtlpReceiver) -> Iterator[Secured]:
    environment = asking_for_keys() | receiver.environment() | {"KAKEYA_ROUTER_LOG_LEVEL": "debug"}
    with (
        runtime(model, tmp_path_factory.mktemp("secured"), num_workers=1, environment=environment) as made,
        grpc.insecure_channel(made.address) as channel,
    ):
        yield Secured(made, channel)


def test_every_rpc_refuses_foreign_sessions_as_unknown_ones(secured: Secured) -> None:
    owner, stranger = secured.key("acme").secret, secured.key("zeta").secret
    session_id = secured.session(owner)
    for method in ON_A_SESSION:
        call = getattr(secured.public, method.name)
        for asked in (session_id, new_session_id(PoolName("demo")), "", "\0", "x" * 100_000):
            if method.name == "FindSession" and not asked:  # in any session of the stranger's, of which there is none
                continue
            request = getattr(runtime_pb2, method.input_type.name)(session_id=asked, **FIELDS.get(method.name, {}))
            assert secured.refusal(call, request, stranger) == NOT_FOUND, (method.name, asked[:100])
    with kakeya.Client(secured.runtime.address, api_key=owner) as client:
        assert client.session(session_id).info().history_length == 2


def test_every_rpc_of_every_service_refuses_whoever_shows_nothing_good(secured: Secured) -> None:
    session_key, token = secured.key("acme").secret, secured.token().secret
    services = ((runtime_pb2, NO_KEY, token), (admin_pb2, NO_KEY, token), (registry_pb2, NO_TOKEN, session_key))
    for module, refusal, wrong in services:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                kind = getattr(module, method.input_type.name)
                call: Any = secured.channel.unary_unary(f"/{service.full_name}/{method.name}", kind.SerializeToString)
                request = kind()
                for secret in ("", "nonsense", wrong, mint(Kind.KEY).secret, mint(Kind.TOKEN).secret):
                    assert secured.refusal(call, request, secret) == refusal, method.full_name
                if module is admin_pb2 and method.name != "Watch":  # which shows a tenant its own, without an end
                    refused = secured.refusal(call, request, session_key)
                    assert refused == (grpc.StatusCode.PERMISSION_DENIED, "this key has not the scope admin")


def test_a_revoked_and_an_expired_key_are_refused(secured: Secured) -> None:
    revoked, expiring = secured.key("acme"), secured.key("acme", expires_in_seconds=600)
    session_id = secured.session(revoked.secret)
    assert secured.info(session_id, expiring.secret) is None, "a key of the same tenant"
    secured.revoke_key(revoked.key.key_id)
    secured.expire(f"key:{expiring.key.key_id}")
    wait_until(lambda: secured.info(session_id, revoked.secret) == NO_KEY, "the revoked key is refused")
    wait_until(lambda: secured.info(session_id, expiring.secret) == NO_KEY, "the expired key is refused")
    assert secured.info(session_id, secured.key("acme").secret) is None, "the session is still there"


def test_a_revoked_and_an_expired_token_are_refused(secured: Secured) -> None:
    leave = registry_pb2.LeaveRequest(pool="elsewhere", worker_id="w", incarnation="i")
    revoked, expiring = secured.token(), secured.token(expires_in_seconds=600)
    for made in (revoked, expiring):
        assert secured.refusal(secured.registry.Leave, leave, made.secret) is None
    secured.revoke_token(revoked.token.token_id)
    secured.expire(f"token:{expiring.token.token_id}")
    for made in (revoked, expiring):
        secret = made.secret
        wait_until(lambda: secured.refusal(secured.registry.Leave, leave, secret) == NO_TOKEN, "it is refused")  # noqa: B023  # called at once


def test_a_token_of_another_worker_takes_nobodys_place(secured: Secured) -> None:
    (worker,) = secured.runtime.list_workers()
    fields: dict[str, Any] = {"pool": worker.pool, "worker_id": worker.worker_id, "incarnation": worker.incarnation}
    other = secured.token(worker_id="another").secret
    for call, request in (
        (secured.registry.Leave, registry_pb2.LeaveRequest(**fields)),
        (secured.registry.Heartbeat, registry_pb2.HeartbeatRequest(**fields)),
    ):
        refused = secured.refusal(call, request, other)
        assert refused == (grpc.StatusCode.PERMISSION_DENIED, "this join token is for another worker")
    assert [known.incarnation for known in secured.runtime.list_workers()] == [worker.incarnation]


def test_guessing_learns_nothing(secured: Secured) -> None:
    made = secured.key("acme")
    session_id = secured.session(made.secret)
    dice = random.Random(11)
    seen = set()
    for guess in range(1000):
        if guess % 3 == 0:
            secret = mint(Kind.KEY).secret
        elif guess % 3 == 1:  # the right id and a secret that is nearly right
            at = dice.randrange(len(made.secret) - 43, len(made.secret))
            secret = made.secret[:at] + ("A" if made.secret[at] != "A" else "B") + made.secret[at + 1 :]
        else:  # nearly the right id, and the right rest
            at = dice.randrange(len("kakeya_key_"), len("kakeya_key_") + 12)
            secret = made.secret[:at] + ("0" if made.secret[at] != "0" else "1") + made.secret[at + 1 :]
        seen.add(secured.info(session_id, secret))
    assert seen == {NO_KEY}
    assert secured.info(session_id, made.secret) is None


def test_no_secret_is_written_down_anywhere(secured: Secured, receiver: OtlpReceiver) -> None:
    made, token = secured.key("acme", label="a label"), secured.token(label="a label")
    secured.session(made.secret)
    leave = registry_pb2.LeaveRequest(pool="elsewhere", worker_id="w", incarnation="i")
    for secret in (made.secret, token.secret):  # each where it is good and where it is not
        secured.info("nothing.here", secret)
        secured.refusal(secured.registry.Leave, leave, secret)
        secured.refusal(secured.admin.ListKeys, admin_pb2.ListKeysRequest(), secret)
        secured.refusal(secured.admin.CreateKey, admin_pb2.CreateKeyRequest(tenant=secret, label=secret), secret)
    request = admin_pb2.RevokeKeyRequest(key_id=made.secret)  # an id is asked for, and somebody gives the whole key
    secured.refusal(secured.admin.RevokeKey, request, secured.runtime.environment["KAKEYA_ROUTER_ADMIN_KEY"])
    secured.revoke_key(made.key.key_id)
    secured.revoke_token(token.token.token_id)
    ours = {made.key.key_id, token.token.token_id}
    wait_until(lambda: ours <= _ids_in_spans(receiver), "the last spans have come")
    written = {
        process.log.name: process.log.read_text() for process in (*secured.runtime.routers, *secured.runtime.workers)
    }
    written["spans"] = "\n".join(map(str, receiver.spans))
    written["errors"] = "\n".join(secured.errors)
    assert made.key.key_id in written["router-0.log"], "ids are written down, so this is where to look"
    for secret in secured.secrets:
        for part in _parts(secret):
            for place, text in written.items():
                assert part not in text, f"a part of a secret is in {place}"


def _ids_in_spans(receiver: OtlpReceiver) -> set[str]:
    return {str(span.attributes.get(f"kakeya.{name}")) for span in receiver.spans for name in ("key_id", "token_id")}


def _parts(secret: str) -> set[str]:
    """Any 12 letters in a row of what must be guessed, and the digest that is kept of the whole."""
    kind = Kind.KEY if secret.startswith("kakeya_key_") else Kind.TOKEN
    assert id_of(kind, secret)
    guessed = secret[-43:]
    return {hashlib.sha256(secret.encode()).hexdigest()} | {guessed[at : at + 12] for at in range(len(guessed) - 11)}


def test_every_action_of_operators_is_audited(secured: Secured) -> None:
    made = secured.key("acme")
    secured.revoke_key(made.key.key_id)
    lines = secured.runtime.routers[0].log.read_text().splitlines()
    ours = [line for line in lines if '"event": "audit"' in line and made.key.key_id in line]
    assert ["key.create" in ours[0], "key.revoke" in ours[1], len(ours)] == [True, True, 2]
    assert all('"actor_key_id": "admin-key"' in line and '"trace_id"' in line for line in ours)
