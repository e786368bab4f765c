"""What the bench of sessions knows before the first turn: above all, what a token's KV must weigh."""

import json
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kakeya.cli.flags import installed_models
from kakeya_bench.conversation import facts
from kakeya_bench.conversation.facts import Facts
from kakeya_bench.conversation.runtime import connected
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from tests.unit.bench.conversation.playing import CONFIG, RSS_BYTES, PlainSettings
from tests.unit.sdk.scripted_admin import ScriptedAdmin
from tests.unit.sdk.scripted_runtime import BYTES_PER_TOKEN, FINGERPRINT, SINK, WINDOW, ScriptedRuntime

Learn = Callable[..., Awaitable[Facts]]


@pytest.fixture
def learn(runtime: ScriptedRuntime) -> Learn:
    async def learn(**places: Any) -> Facts:
        async with connected(PlainSettings.parse(["--address", runtime.address])) as (client, workers):
            return await facts.learn(await client.create_session(), workers, **places)

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
        "name": "counter", "fingerprint": FINGERPRINT, "exact": True, "sink": SINK, "window": WINDOW,
        "reserved_bytes": 32_768, "kv_dtype": "float32", "kv_bytes_per_token": BYTES_PER_TOKEN,
        "kv_live_bytes_at_plateau": (SINK + WINDOW) * BYTES_PER_TOKEN,
    }  # fmt: skip
    assert isinstance(worker, dict)
    assert (worker["worker_id"], worker["dtype"], worker["rss_bytes"]) == ("scripted", "float32", RSS_BYTES)
    json.dumps(worker)


async def test_what_is_named_comes_before_what_is_known(learn: Learn, tmp_path: Path) -> None:
    """A config.json that is named, then the one beside the tokenizer; a type that is named, then the worker's."""
    for name, num_layers in (("named", 1), ("beside", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": num_layers}))
    named, beside = tmp_path / "named", tmp_path / "beside"
    assert (await learn(config=named, beside=beside)).bytes_per_token == 256
    assert (await learn(beside=beside)).bytes_per_token == 512
    halved = await learn(beside=beside, kv_dtype="bfloat16")
    assert (halved.bytes_per_token, halved.kv_dtype) == (256, "bfloat16")


async def test_no_config_is_known(learn: Learn) -> None:
    known = await learn()
    assert known.bytes_per_token is None
    assert known.why_not == "the config.json of 'counter' is not known: name it with --config"
    assert known.document()["kv_live_bytes_at_plateau"] is None


async def test_the_config_of_the_installed_model(
    learn: Learn, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = await learn()
    assert (known.bytes_per_token, known.why_not) == (None, f"{installed}/config.json: No such file or directory")
    (installed / "config.json").write_text(json.dumps(CONFIG))
    assert (await learn()).bytes_per_token == BYTES_PER_TOKEN
    monkeypatch.delattr(sys.modules["the_counter"], "counter")
    assert (await learn()).why_not.startswith("the installed model 'counter' is broken: AttributeError: ")


@pytest.mark.parametrize("workers", [[], [pb.WorkerStatus(worker_id="scripted")]])
async def test_no_type_is_known(
    learn: Learn, admin: ScriptedAdmin, config: Path, workers: list[pb.WorkerStatus]
) -> None:
    admin.workers = workers
    known = await learn(config=config)
    assert (known.bytes_per_token, known.kv_dtype) == (None, None)
    assert known.why_not == "the type of K and V is not known: name it with --kv-dtype, or take an operator's key"
    assert bool(known.worker) == bool(workers)
    assert (await learn(config=config, kv_dtype="float32")).bytes_per_token == BYTES_PER_TOKEN
