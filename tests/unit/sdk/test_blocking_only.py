"""What only the blocking client can meet: Ctrl-C, and other threads."""

import os
import signal
import threading
import time

import grpc
import pytest

import kakeya
from kakeya import Client
from tests.unit.sdk.scripted_runtime import ScriptedRuntime, stalls


def interrupt() -> None:
    time.sleep(0.2)  # until the client waits
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_cancels_a_generation(runtime: ScriptedRuntime) -> None:
    runtime.hold_after, runtime.on_hold = 2, interrupt
    with Client(runtime.address) as client:
        session = client.create_session()
        with pytest.raises(KeyboardInterrupt):
            session.turn([1], max_tokens=9).all()
        runtime.wait_for(lambda: runtime.num_cancelled == 1)
        runtime.hold_after = None
        assert session.append([7]).history_length == 4


def test_ctrl_c_cancels_an_append(runtime: ScriptedRuntime) -> None:
    gone = threading.Event()

    def interrupt_and_wait(context: grpc.ServicerContext) -> None:
        context.add_callback(gone.set)
        interrupt()
        stalls(context)

    runtime.before["AppendTokens"].append(interrupt_and_wait)
    with Client(runtime.address) as client:
        session = client.create_session()
        with pytest.raises(KeyboardInterrupt):
            session.append([1])
        assert gone.wait(60), "the call went on"


def test_cancelling_from_another_thread_is_an_error_here(runtime: ScriptedRuntime) -> None:
    runtime.hold_after = 2
    with Client(runtime.address) as client:
        generation = client.create_session().turn([1], max_tokens=9)
        runtime.on_hold = generation.cancel
        with pytest.raises(kakeya.Cancelled):
            generation.all()


def test_closing_the_client_ends_its_calls(runtime: ScriptedRuntime) -> None:
    client = Client(runtime.address)
    session = client.create_session()

    def close_and_wait(context: grpc.ServicerContext) -> None:
        threading.Thread(target=client.close).start()
        stalls(context)

    runtime.before["GetSessionInfo"].append(close_and_wait)
    with pytest.raises(kakeya.Cancelled):
        session.info()


def test_tls_credentials_are_used() -> None:
    runtime = ScriptedRuntime(grpc.local_server_credentials())
    with Client(runtime.address, credentials=grpc.local_channel_credentials()) as client:
        assert client.create_session().id == "counter.0"
    runtime.stop()


def test_a_session_that_ctrl_c_kept_from_being_seen_is_closed(runtime: ScriptedRuntime) -> None:
    def interrupt_and_wait(context: grpc.ServicerContext) -> None:
        interrupt()
        stalls(context)

    runtime.after["CreateSession"].append(interrupt_and_wait)
    with Client(runtime.address) as client, pytest.raises(KeyboardInterrupt):
        client.create_session()
    assert (runtime.sessions, len(runtime.by_request_id)) == ({}, 1)
