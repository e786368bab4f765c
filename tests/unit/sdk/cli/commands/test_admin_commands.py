"""`kakeya keys`, `tokens`, `tenants`, `sessions` and `workers`, against a scripted AdminService."""

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import pytest

from kakeya.cli.commands import commands, tokens
from kakeya.cli.flags.connection import Connection
from kakeya.cli.output import byte_count, duration, moment
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.sdk.scripted_admin import SECRET, TOKEN_SECRET, ScriptedAdmin
from tests.unit.sdk.scripted_runtime import fails, fails_plainly

Run = Callable[..., tuple[int, str, str]]
NOUNS = ("keys", "tokens", "tenants", "sessions", "workers")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    for name in ("ADDRESS", "API_KEY", "TLS_CA", "TLS_CERT", "TLS_KEY"):
        monkeypatch.delenv(f"KAKEYA_{name}", raising=False)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedAdmin]:
    admin = ScriptedAdmin()
    monkeypatch.setenv("KAKEYA_ADDRESS", admin.address)
    yield admin
    admin.stop()


@pytest.fixture
def run(admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(command: str, *flags: str) -> tuple[int, str, str]:
        noun, *words = command.split()
        try:
            status = import_module(f"kakeya.cli.commands.{noun}").main([*words, *flags])
        except SystemExit as refusal:
            status = refusal.code
        output = capsys.readouterr()
        return status, output.out, output.err

    return run


def lines(text: str) -> list[list[str]]:
    """The cells of a table, which stand two blanks or more apart."""
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


def test_they_are_installed() -> None:
    found = commands.find()
    for noun in NOUNS:
        assert commands.summary(found[noun]) == import_module(f"kakeya.cli.commands.{noun}").SUMMARY


def test_a_new_key_stands_alone_on_standard_output(run: Run, admin: ScriptedAdmin) -> None:
    status, out, err = run("keys create --tenant acme --label", "night shift")
    assert (status, out) == (0, f"{SECRET}\n")
    assert err == (
        "key 0123456789ab of tenant acme, for sessions, expires never. It is shown only now; clients take it from "
        "KAKEYA_API_KEY.\n"
    )
    (request,) = admin.requests["CreateKey"]
    assert (request.tenant, request.label, list(request.scopes)) == ("acme", "night shift", [])
    assert not request.HasField("expires_in_seconds")


@pytest.mark.parametrize("flags", ["--scope admin sessions", "--scope admin --scope sessions --scope admin"])
def test_a_key_with_scopes_and_an_end(run: Run, admin: ScriptedAdmin, flags: str) -> None:
    status, out, err = run(f"keys create --tenant acme {flags} --expires-in 30d --json")
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "secret": SECRET,
        "key_id": "0123456789ab",
        "tenant": "acme",
        "scopes": ["admin", "sessions"],
        "label": "",
        "created_at": "2023-11-14T22:13:20Z",
        "expires_at": "2033-06-17T03:33:20Z",
    }
    assert admin.requests["CreateKey"][0].expires_in_seconds == 30 * 86_400


def test_keys_are_listed(run: Run, admin: ScriptedAdmin) -> None:
    now = time.time()
    admin.keys = [
        pb.Key(key_id="b" * 12, tenant="beta", scopes=[pb.SCOPE_ADMIN, pb.SCOPE_SESSIONS], created_at=now - 30),
        pb.Key(key_id="a" * 12, tenant="acme", scopes=[pb.SCOPE_SESSIONS], label="\x1b[2Jnight", created_at=now - 7300),
    ]
    admin.keys[1].expires_at = now + 86_400 * 3 + 60
    admin.keys[0].expires_at = now - 86_400
    status, out, _ = run("keys list")
    assert status == 0
    header, acme, beta = lines(out)
    assert header == ["KEY", "TENANT", "SCOPES", "CREATED", "EXPIRES", "LABEL"]
    assert acme == ["a" * 12, "acme", "sessions", "2h 1m ago", "in 3d", r"\x1b[2Jnight"]
    assert beta == ["b" * 12, "beta", "admin, sessions", "30s ago", "1d ago", "-"]
    assert len({line.index(word) for line, word in zip(out.splitlines(), ["TENANT", "acme", "beta"], strict=True)}) == 1
    assert json.loads(run("keys list --tenant acme --json")[1])[0]["label"] == "\x1b[2Jnight"
    assert [request.tenant for request in admin.requests["ListKeys"]] == ["", "acme"]


def test_several_keys_are_revoked_although_one_is_unknown(run: Run, admin: ScriptedAdmin) -> None:
    admin.keys = [pb.Key(key_id=name, tenant="acme") for name in ("one", "two")]
    status, out, err = run("keys revoke one nonesuch two")
    assert status == 1
    assert out == "revoked one of tenant acme\nrevoked two of tenant acme\n"
    assert err == (
        "kakeya keys: error: nonesuch: scripted CREDENTIAL_NOT_FOUND; `kakeya keys list` and `kakeya tokens list` show "
        "the ids\n"
    )
    assert admin.keys == []
    assert run("keys list") == (0, "", "no keys\n")
    assert run("keys list --json")[1] == "[]\n"


def test_tokens(run: Run, admin: ScriptedAdmin) -> None:
    status, out, err = run(
        "tokens create --pool qwen --worker-id mac-1 --model Qwen/Qwen3 --label lab --expires-in 90s"
    )
    assert (status, out) == (0, f"{TOKEN_SECRET}\n")
    assert err.startswith("token 0123456789ab for pool qwen, worker mac-1, model Qwen/Qwen3, expires never. It is ")
    (request,) = admin.requests["CreateToken"]
    assert (request.pool, request.worker_id, request.model, request.label) == ("qwen", "mac-1", "Qwen/Qwen3", "lab")
    assert request.expires_in_seconds == 90
    assert "for pool any, worker any, model any, " in run("tokens create")[2]
    rows = lines(run("tokens list")[1])
    assert rows[0] == ["TOKEN", "POOL", "WORKER", "MODEL", "CREATED", "EXPIRES", "LABEL"]
    assert [row[1:4] for row in rows[1:]] == [["qwen", "mac-1", "Qwen/Qwen3"], ["any", "any", "any"]]
    assert json.loads(run("tokens list --json")[1])[1] == {
        "token_id": "0123456789ab",
        "pool": "",
        "worker_id": "",
        "model": "",
        "label": "",
        "created_at": "2023-11-14T22:13:20Z",
        "expires_at": None,
    }
    assert run("tokens revoke x y") == (0, "revoked x\nrevoked y\n", "")


def test_a_token_is_printed_as_the_line_that_joins(run: Run, admin: ScriptedAdmin) -> None:
    flags = "--print-join --pool qwen --worker-id mac-1 --model Qwen/Qwen3"
    status, out, err = run(f"tokens create {flags} --join router.example.org:50051")
    line = (
        f"KAKEYA_WORKER_TOKEN={TOKEN_SECRET} kakeya worker --model Qwen/Qwen3 --join router.example.org:50051 "
        "--pool qwen --worker-id mac-1"
    )
    assert (status, out) == (0, f"{line}\n")
    assert "It is shown only now" in err
    assert err.endswith("As a service: `kakeya worker install-service` in place of `kakeya worker`.\n")
    assert json.loads(run(f"tokens create {flags} --join router.example.org:50051 --json")[1])["join_line"] == line
    assert run(f"tokens create {flags} --join router.example.org:50051 --reverse")[1] == f"{line} --reverse\n"
    assert run("tokens create --print-join")[1].endswith(f" kakeya worker --model MODEL --join {admin.address}\n")
    assert "Put the model in the place of MODEL. Only this host reaches" in run("tokens create --print-join")[2]


def test_the_line_that_joins_names_the_authorities_of_tls(tmp_path: Path) -> None:
    flags = Namespace(join="", address="router:1", tls_ca=tmp_path / "ca.pem", reverse=False)
    token = pb.Token(model="m")
    assert tokens._join_line(token, "s", flags) == (
        "KAKEYA_WORKER_TOKEN=s kakeya worker --model m --join router:1 --router-ca ca.pem"
    )
    advice = [*tokens._advice(token, flags, Connection("router:1"))]
    assert advice[1:] == [f"Copy {tmp_path}/ca.pem to where the line is pasted."]


def test_tenants_are_listed_pool_by_pool(run: Run, admin: ScriptedAdmin) -> None:
    usage = [
        pb.PoolUsage(pool="qwen", num_sessions=2, reserved_bytes=1 << 20, num_waiting=1),
        pb.PoolUsage(pool="llama", num_sessions=1, reserved_bytes=5),
    ]
    quota = pb.Quota(max_sessions=1000, max_reserved_bytes=3 << 29, tokens_per_minute=6000)
    admin.tenants = [
        pb.Tenant(name="beta"),
        pb.Tenant(name="acme", quota=quota, has_own_quota=True, usage=usage),
        pb.Tenant(name="", usage=usage[:1]),
    ]
    _, out, _ = run("tenants list")
    rows = lines(out)[1:]
    assert rows == [
        ["-", "qwen", "2", "1.0 MiB", "1", "-", "-", "-", "default"],
        ["acme", "llama", "1", "5 B", "0", "1,000", "1.5 GiB", "6,000", "own"],
        ["acme", "qwen", "2", "1.0 MiB", "1", "1,000", "1.5 GiB", "6,000", "own"],
        ["beta", "-", "0", "0 B", "0", "-", "-", "-", "default"],
    ]
    assert json.loads(run("tenants list --json")[1])[1] == {
        "name": "acme",
        "quota": {"max_sessions": 1000, "max_reserved_bytes": 3 << 29, "tokens_per_minute": 6000},
        "has_own_quota": True,
        "usage": [
            {"pool": "qwen", "num_sessions": 2, "reserved_bytes": 1_048_576, "num_waiting": 1},
            {"pool": "llama", "num_sessions": 1, "reserved_bytes": 5, "num_waiting": 0},
        ],
    }


def test_a_quota_is_set_as_a_whole(run: Run, admin: ScriptedAdmin) -> None:
    status, out, _ = run("tenants set acme --max-sessions 3 --max-bytes 2GiB")
    assert status == 0
    assert out == "tenant acme has a quota of its own: at most 3 sessions, at most 2,147,483,648 reserved bytes\n"
    assert admin.requests["SetQuota"][0].quota == pb.Quota(max_sessions=3, max_reserved_bytes=2 << 30)


def test_no_limits_and_the_defaults_are_different_things(run: Run, admin: ScriptedAdmin) -> None:
    assert run("tenants set acme --tokens-per-minute 0")[1] == "tenant acme has a quota of its own: no limits\n"
    assert run("tenants set acme --defaults")[1] == "tenant acme has the router's defaults: at most 7 sessions\n"
    assert [request.HasField("quota") for request in admin.requests["SetQuota"]] == [True, False]


def test_all_pages_of_sessions(run: Run, admin: ScriptedAdmin) -> None:
    first = pb.Session(session_id="qwen.1", tenant="acme", pool="qwen", state="open", idle_seconds=65, reserved_bytes=9)
    busy = pb.Session(session_id="qwen.2", tenant="acme", pool="qwen", worker_id="w", state="open", history_length=5000)
    busy.busy, busy.client_label, busy.kv_live_bytes = True, "chat", 77
    changed = pb.Session(session_id="qwen.1", tenant="acme", pool="qwen", state="closing", idle_seconds=66)
    admin.session_pages = [[first], [], [busy, changed]]
    status, out, _ = run("sessions list --tenant acme --pool qwen")
    assert status == 0
    assert lines(out)[1:] == [
        ["qwen.2", "acme", "qwen", "w", "open", "busy", "5,000", "77 B", "0 B", "chat"],
        ["qwen.1", "acme", "qwen", "-", "closing", "1m 6s", "0", "0 B", "0 B", "-"],
    ]
    requests = admin.requests["ListSessions"]
    assert [request.page_token for request in requests] == ["", "1", "2"]
    assert {(request.tenant, request.pool, request.page_size) for request in requests} == {("acme", "qwen", 1000)}
    documents = json.loads(run("sessions list --json")[1])
    assert documents[0] == {
        "session_id": "qwen.2",
        "tenant": "acme",
        "key_id": "",
        "client_label": "chat",
        "model": "",
        "pool": "qwen",
        "worker_id": "w",
        "state": "open",
        "history_length": 5000,
        "reserved_bytes": 0,
        "kv_live_bytes": 77,
        "idle_seconds": 0.0,
        "busy": True,
        "sink": 0,
        "window": 0,
        "retained": [],
        "lane": None,
        "last_turn": None,
    }
    admin.session_pages = [[]]
    assert run("sessions list") == (0, "", "no sessions\n")


def test_sessions_are_closed(run: Run, admin: ScriptedAdmin) -> None:
    admin.session_ids = ["qwen.1"]
    status, out, err = run("sessions close qwen.0 qwen.1")
    assert (status, out) == (1, "closed qwen.1 at 12,345 tokens\n")
    assert err == "kakeya sessions: error: qwen.0: scripted SESSION_NOT_FOUND\n"


def test_workers(run: Run, admin: ScriptedAdmin) -> None:
    assert run("workers list") == (0, "", "no workers\n")
    worker = pb.WorkerStatus(worker_id="w", pool="qwen", model="Qwen3", weights="int8", exact=True, address="h:1")
    worker.num_sessions, worker.num_lanes, worker.reserved_bytes, worker.slab_bytes = 2, 4, 2048, 4096
    worker.kv_live_bytes, worker.last_heartbeat_age_seconds, worker.rss_bytes = 1024, 0.25, 3 << 20
    older = pb.WorkerStatus()
    older.CopyFrom(worker)
    older.worker_id, older.rss_bytes, older.draining = "x", 0, True
    admin.workers = [worker, older]
    header, *rows = lines(run("workers list")[1])
    assert header[-4:] == ["KV LIVE BYTES", "RSS BYTES", "HEARTBEAT", "STATE"]
    facts = ["qwen", "Qwen3", "int8, exact", "h:1", "2", "4", "2.0 KiB", "4.0 KiB", "1.0 KiB"]
    assert rows == [["w", *facts, "3.0 MiB", "0s ago", "-"], ["x", *facts, "-", "0s ago", "draining"]]
    admin.workers = [worker]
    (document,) = json.loads(run("workers list --json")[1])
    assert (document["slab_bytes"], document["last_heartbeat_age_seconds"], document["exact"]) == (4096, 0.25, True)
    assert document["rss_bytes"] == 3 << 20
    assert set(document) == set(pb.WorkerStatus.DESCRIPTOR.fields_by_name)


def test_a_worker_is_drained_and_taken_back(run: Run, admin: ScriptedAdmin) -> None:
    admin.workers = [pb.WorkerStatus(worker_id="w", incarnation="i", pool="qwen", num_sessions=1)]
    assert run("workers drain w --pool qwen") == (0, "draining w, 1 session left\n", "")
    assert run("workers drain w --undo") == (0, "w takes sessions again\n", "")
    requests = [(request.worker_id, request.pool, request.undo) for request in admin.requests["DrainWorker"]]
    assert requests == [("w", "qwen", False), ("w", "", True)]
    status, out, err = run("workers drain nobody")
    assert (status, out) == (1, "")
    assert err.startswith("kakeya workers: error: scripted INVALID_FIELD")


@pytest.mark.parametrize(("ends", "says"), [("empty", "w is empty"), ("gone", "w is gone")])
def test_a_drain_is_waited_for(
    run: Run, admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch, ends: str, says: str
) -> None:
    worker = pb.WorkerStatus(worker_id="w", incarnation="i", num_sessions=1200)
    admin.workers = [worker, pb.WorkerStatus(worker_id="x", incarnation="j", num_sessions=7)]
    left = iter([1200, 1, 1, 0])

    def pass_by(_: float) -> None:
        worker.num_sessions = next(left)
        if ends == "gone" and not worker.num_sessions:
            admin.workers.remove(worker)

    monkeypatch.setattr("kakeya.cli.commands.workers.time.sleep", pass_by)
    progress = "draining w, 1,200 sessions left\ndraining w, 1 session left\n"
    assert run("workers drain w --wait --timeout 1h") == (0, f"{progress}{says}\n", "")


def test_a_drain_that_takes_too_long_or_is_undone_by_somebody(
    run: Run, admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = pb.WorkerStatus(worker_id="w", incarnation="i", num_sessions=2)
    admin.workers = [worker]
    now = [0.0]
    monkeypatch.setattr("kakeya.cli.commands.workers.time.monotonic", lambda: now[0])

    def pass_by(_: float) -> None:
        now[0] += 60

    monkeypatch.setattr("kakeya.cli.commands.workers.time.sleep", pass_by)
    status, out, err = run("workers drain w --wait --timeout 90s")
    assert (status, out) == (1, "draining w, 2 sessions left\n")
    assert err == "kakeya workers: error: w: 2 sessions left after 1m 30s; it goes on draining\n"

    def take_back(_: float) -> None:
        worker.draining = False

    monkeypatch.setattr("kakeya.cli.commands.workers.time.sleep", take_back)
    status, _, err = run("workers drain w --wait")
    assert (status, err) == (1, "kakeya workers: error: w takes sessions again: the drain was undone\n")


def test_a_scope_of_a_newer_router_is_shown_as_its_number(run: Run, admin: ScriptedAdmin) -> None:
    admin.keys = [pb.Key(key_id="a", tenant="t", scopes=[77], created_at=1.0)]  # type: ignore[list-item]  # as meant
    assert json.loads(run("keys list --json")[1])[0]["scopes"] == ["77"]


@pytest.mark.parametrize(
    "command",
    [
        "keys",
        "keys nonsense",
        "keys create",
        "keys create --tenant t --scope root",
        "keys create --tenant t --expires-in 3",
        "keys create --tenant t --expires-in 0s",
        "keys create --tenant t --api-key secret-secret",
        "keys revoke",
        "tenants set acme",
        "tenants set acme --defaults --max-sessions 3",
        "tenants set acme --max-sessions -1",
        "tenants set acme --max-sessions ²",
        "tenants set acme --max-bytes 1GB",
        "tenants set acme --max-bytes 9000TiB",
        "sessions close",
        "workers list --tls-cert /nowhere",
    ],
)
def test_flags_that_make_no_sense(run: Run, admin: ScriptedAdmin, command: str) -> None:
    status, out, err = run(command)
    assert (status, out) == (2, "")
    assert err
    assert not admin.requests


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (fails("UNAUTHENTICATED"), "scripted UNAUTHENTICATED; set KAKEYA_API_KEY or pass --api-key-file"),
        (
            fails("PERMISSION_DENIED"),
            "scripted PERMISSION_DENIED; it takes a key with the scope admin, which an administrator makes: "
            "`kakeya keys create --scope admin`",
        ),
        (fails("STORE_UNAVAILABLE"), "scripted STORE_UNAVAILABLE"),
        (fails_plainly(grpc.StatusCode.UNIMPLEMENTED), "plain; the router at {address} is older than this command"),
    ],
)
def test_a_refusal_is_one_line_with_its_cure(run: Run, admin: ScriptedAdmin, fault: Any, says: str) -> None:
    admin.before["ListWorkers"].append(fault)
    expected = f"kakeya workers: error: {says.format(address=admin.address)}\n"
    assert run("workers list") == (1, "", expected)


def test_a_router_that_is_not_there(run: Run, admin: ScriptedAdmin) -> None:
    admin.stop()
    status, out, err = run("keys list")
    assert (status, out) == (1, "")
    assert err.startswith(f"kakeya keys: error: no runtime answers at {admin.address} (")
    assert err.endswith("); nothing listens there; `kakeya up` starts one on this machine\n")
    assert err.count("\n") == 1


def test_thousands_of_keys(run: Run, admin: ScriptedAdmin) -> None:
    admin.keys = [pb.Key(key_id=f"{number:012x}", tenant="acme", label="x" * 256) for number in range(17_000)]
    assert pb.ListKeysResponse(keys=admin.keys).ByteSize() > 4 << 20, "more than gRPC takes by itself"
    status, out, err = run("keys list --json")
    assert (status, err) == (0, "")
    assert len(json.loads(out)) == 17_000


def test_long_labels_are_cut_for_people(run: Run, admin: ScriptedAdmin) -> None:
    labels = ["x" * 40, "y" * 41, "\x1b" * 200]
    admin.keys = [pb.Key(key_id=str(place), tenant="t" * 64, label=label) for place, label in enumerate(labels)]
    rows = lines(run("keys list")[1])[1:]
    assert [row[-1] for row in rows] == ["x" * 40, "y" * 39 + "…", (r"\x1b" * 200)[:39] + "…"]
    assert {row[1] for row in rows} == {"t" * 64}, "names are for copying"
    assert [key["label"] for key in json.loads(run("keys list --json")[1])] == labels


def test_bytes_for_people() -> None:
    shown = {
        0: "0 B",
        1023: "1023 B",
        1024: "1.0 KiB",
        1536 << 20: "1.5 GiB",
        3 << 40: "3.0 TiB",
        5 << 50: "5,120.0 TiB",
    }
    assert {count: byte_count.show(count) for count in shown} == shown


def test_durations() -> None:
    assert [duration.parse(text) for text in ("90s", "15m", "12h", "30d")] == [90, 900, 43_200, 2_592_000]
    shown = {0.4: "0s", 45: "45s", 120: "2m", 3_725: "1h 2m", 3_605: "1h", 2_591_999: "29d 23h", -5: "0s"}
    assert {seconds: duration.show(seconds) for seconds in shown} == shown
    assert (moment.until(0, 5), moment.until(10, 5), moment.until(5, 10)) == ("never", "in 5s", "5s ago")
    assert moment.until(2_592_000, 0.01) == "in 30d"
