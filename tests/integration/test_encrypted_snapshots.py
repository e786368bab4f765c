"""Sessions over an encrypted store: a worker with the keys goes on, and one without them leaves them as they are."""

import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kakeya
from tests.integration.processes import Process, Runtime, runtime

PROMPT = list(range(100, 140))
NUM_TOKENS = 6
FLAGS = ("--queue-seconds=1",)


def key_file(path: Path, *keys: str) -> str:
    path.touch(0o600)
    path.write_text("\n".join(keys))
    return f"--snapshot-key-file={path}"


def turn(session: kakeya.Session, number: int) -> list[int]:
    session.append([*PROMPT, number])
    return session.generate(max_tokens=NUM_TOKENS, temperature=1.0, seed=number).all()


def in_place_of(made: Runtime, *flags: str) -> Process:
    """A worker that is there instead of those that were."""
    others = [each for each in made.workers if each.process.poll() is None]
    worker = made.start_worker("--weights=int8", *flags)
    made.wait_for_workers(len(others) + 1)
    for each in others:
        assert each.terminate() == 0
    return worker


def resumed(made: Runtime, session_id: str) -> dict[str, Any]:
    """What the router has said of it the last time."""
    lines = map(json.loads, made.routers[0].log.read_text().splitlines())
    return [each for each in lines if each["event"] == "session resumed" and each["session_id"] == session_id][-1]


def test_a_session_goes_on_with_its_keys_and_waits_without_them(model: Path, tmp_path: Path) -> None:
    old, new = secrets.token_hex(32), secrets.token_hex(32)
    keyed = key_file(tmp_path / "keys", old)
    rotated = key_file(tmp_path / "rotated", new, old)
    store = tmp_path / "snapshots"
    environment = {"KAKEYA_WORKER_SNAPSHOTS": str(store)}
    with runtime(model, tmp_path, num_workers=0, router_flags=FLAGS, environment=environment) as made:
        in_place_of(made, keyed)
        with kakeya.Client(made.address) as client:
            with client.create_session() as undisturbed:
                expected = [turn(undisturbed, number) for number in range(4)]
            session = client.create_session()
            for number, flags in enumerate(((keyed,), (keyed,), (rotated,))):
                if number:
                    in_place_of(made, *flags)  # what leaves has its sessions parked
                assert turn(session, number) == expected[number]
                if number:
                    assert resumed(made, session.id)["restored_tokens"] > 0
                session.park()
                assert said_in_files(store) == []
            in_place_of(made)
            with pytest.raises(kakeya.SnapshotStoreUnavailable):
                turn(session, 3)
            with client.create_session() as plain:
                turn(plain, 0)
                plain.park()
                assert said_in_files(store), "so it would be found"
            in_place_of(made, rotated)
            assert turn(session, 3) == expected[3]
            session.close()
    assert "it is encrypted, and this worker has no --snapshot-key-file" in made.routers[0].log.read_text()


def said_in_files(store: Path) -> list[str]:
    """Files in which the tokens that were said can be read."""
    said = np.array(PROMPT, "<u4").tobytes()
    files = {path.name: path.read_bytes() for path in store.rglob("*.safetensors")}
    assert files
    return [name for name, content in files.items() if said in content]
