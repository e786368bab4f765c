"""What a bench knows of a model and of its workers: above all, what a token's KV must weigh."""

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import pytest

from kakeya.cli.commands.admin_calls import AdminCalls
from kakeya.cli.flags import installed_models
from kakeya.cli.flags.connection import Connection
from kakeya_bench.conversation import speech
from kakeya_bench.conversation.runtime import FRESH_SECONDS, Workers, connected
from kakeya_bench.conversation.speech import Facts
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.bench.conversation.playing import CONFIG, RSS_BYTES, OwnClock, PlainSettings
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, FINGERPRINT, SINK, WINDOW, ScriptedRuntime, fails

Learn = Callable[..., Awaitable[Facts]]


@pytest.fixture
def learn(runtime: ScriptedRuntime) -> Learn:
    async def learn(**places: Any) -> Facts:
        async with connected(PlainSettings.parse(["--address", runtime.address])) as (client, workers):
            return await speech.learn(await client.create_session(), workers, **places)

    return learn


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an installed model that has the served one's name; nothing is in it."""
    directory = tmp_path / "installed"
    directory.mkdir()
    module = ModuleType("the_counter")
    module.__dict__["counter"] = lambda: directory
    monkeypatch.setitem(sys.modules, "the_counter", module)
    known = {"counter": [EntryPoint("counter", "the_counter:counter", "a group")]}
    monkeypatch.setattr(installed_models, "entry_points", lambda group, name: known.get(name, []))
    return directory


async def test_the_session_the_worker_and_the_config_say_it(learn: Learn, config: Path) -> None:
    known = await learn(config=config)
    written = known.document()
    worker = written.pop("worker")
    assert written == {
        "name": "counter",
        "fingerprint": FINGERPRINT,
        "exact": True,
        "sink": SINK,
        "window": WINDOW,
        "reserved_bytes": 32_768,
        "kv_dtype": "float32",
        "kv_bytes_per_token": BYTES_PER_TOKEN,
        "kv_live_bytes_at_plateau": (SINK + WINDOW) * BYTES_PER_TOKEN,
    }
    assert isinstance(worker, dict)
    assert (worker["worker_id"], worker["dtype"], worker["rss_bytes"]) == ("scripted", "float32", RSS_BYTES)
    json.dumps(worker)


async def test_what_is_named_comes_before_what_is_known(learn: Learn, tmp_path: Path) -> None:
    """A config.json that is named, then the one beside the tokenizer; a type that is named, then the worker's."""
    for name, num_layers in (("named", 1), ("beside", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": num_layers}))
    named, beside = tmp_path / "named", tmp_path / "beside"
    assert (await learn(config=named, beside=beside)).kv_bytes_per_token == 256
    assert (await learn(beside=beside)).kv_bytes_per_token == 512
    halved = await learn(beside=beside, kv_dtype="bfloat16")
    assert (halved.kv_bytes_per_token, halved.kv_dtype) == (256, "bfloat16")


async def test_no_config_is_known(learn: Learn) -> None:
    known = await learn()
    assert known.kv_bytes_per_token is None
    assert known.why_not == "the config.json of 'counter' is not known: name it with --config"
    assert known.document()["kv_live_bytes_at_plateau"] is None


async def test_the_config_of_the_installed_model(
    learn: Learn, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await learn()
    assert (known.kv_bytes_per_token, known.why_not) == (None, f"{installed}/config.json: No such file or directory")
    (installed / "config.json").write_text(json.dumps(CONFIG))
    assert (await learn()).kv_bytes_per_token == BYTES_PER_TOKEN
    monkeypatch.delattr(sys.modules["the_counter"], "counter")
    assert (await learn()).why_not.startswith("the installed model 'counter' is broken: AttributeError: ")


@pytest.mark.parametrize("workers", [[], [pb.WorkerStatus(worker_id="scripted")]])
async def test_no_type_is_known(
    learn: Learn, admin: ScriptedAdmin, config: Path, workers: list[pb.WorkerStatus]
) -> None:
    admin.workers = workers
    known = await learn(config=config)
    assert (known.kv_bytes_per_token, known.kv_dtype) == (None, None)
    assert known.why_not == "the type of K and V is not known: name it with --kv-dtype, or take an operator's key"
    assert bool(known.worker) == bool(workers)
    assert (await learn(config=config, kv_dtype="float32")).kv_bytes_per_token == BYTES_PER_TOKEN


@pytest.fixture
def workers(admin: ScriptedAdmin) -> Iterator[Workers]:
    admin.workers = [pb.WorkerStatus(worker_id="one", rss_bytes=100), pb.WorkerStatus(worker_id="two", rss_bytes=200)]
    with AdminCalls(Connection(admin.address, "kakeya_key_of_an_operator")) as calls:
        yield Workers(calls)


async def test_however_many_ask_the_router_is_asked_once_a_second(
    workers: Workers, admin: ScriptedAdmin, own_clock: OwnClock
) -> None:
    asked = admin.requests["ListWorkers"]
    found = await asyncio.gather(*(workers.find(name) for name in ("one", "two", "three") * 5))
    assert [worker and worker.rss_bytes for worker in found] == [100, 200, None] * 5
    assert len(asked) == 1, "the others have waited for its answer"
    admin.workers[0].rss_bytes = 101
    for num_asked, rss_bytes in ((1, 100), (2, 101), (2, 101), (3, 101)):
        own_clock.go_on(0.5)
        found = await asyncio.gather(*(workers.find("one") for _ in range(5)))
        assert [worker and worker.rss_bytes for worker in found] == [rss_bytes] * 5
        assert len(asked) == num_asked
    assert (FRESH_SECONDS, workers.why_not) == (1.0, "")
    assert admin.metadata["ListWorkers"][0]["authorization"] == "Bearer kakeya_key_of_an_operator"


async def test_others_go_on_while_the_router_thinks(workers: Workers, admin: ScriptedAdmin) -> None:
    going_on = threading.Event()

    def thinks(context: grpc.ServicerContext) -> None:
        assert going_on.wait(60)

    admin.before["ListWorkers"].append(thinks)
    finding = asyncio.create_task(workers.find("one"))
    await asyncio.sleep(0.05)
    assert not finding.done()
    going_on.set()
    assert await finding is not None


async def test_whoever_is_no_operator_is_told_why_nothing_is_known(
    workers: Workers, admin: ScriptedAdmin, own_clock: OwnClock
) -> None:
    assert await workers.find("one") is not None
    own_clock.go_on(1.0)
    admin.before["ListWorkers"].append(fails("PERMISSION_DENIED"))
    assert await workers.find("one") is None, "what was known is too old"
    assert workers.why_not == "the router does not list its workers: scripted PERMISSION_DENIED"
    own_clock.go_on(0.5)
    assert await workers.find("one") is None
    assert len(admin.requests["ListWorkers"]) == 2, "a refusal is not asked for again at once, either"
    own_clock.go_on(0.5)
    assert (await workers.find("one") is not None, workers.why_not) == (True, "")
    del admin.workers[0]
    own_clock.go_on(1.0)
    assert (await workers.find("one"), workers.why_not) == (None, ""), "it has left"
