"""Commands between two steps."""

import threading
import time

from kakeya_worker.engine.command_queue import Command, CommandQueue


def _command(begun: list[str], name: str) -> Command:
    def command() -> None:
        begun.append(name)
        time.sleep(0.002)

    return command


def test_no_long_command_begins_once_the_time_is_over_and_no_other_waits() -> None:
    queue = CommandQueue()
    begun: list[str] = []
    for name in ("a", "b"):
        queue.put(_command(begun, f"long {name}"), is_long=True)
        queue.put(_command(begun, name))
    queue.run_waiting(0.001)
    assert begun == ["a", "b", "long a"]
    queue.put(_command(begun, "c"))
    queue.run_waiting(0.001)
    assert begun == ["a", "b", "long a", "c", "long b"]


def test_a_long_command_wakes_the_thread_and_none_is_forgotten() -> None:
    queue = CommandQueue()
    begun: list[str] = []

    def put_all() -> None:
        for name in "abc":
            queue.put(_command(begun, name), is_long=True)

    timer = threading.Timer(0.05, put_all)
    timer.start()
    while len(begun) < 3:
        queue.run_next(None)
        queue.run_waiting(0.001)
    assert begun == ["a", "b", "c"]
    timer.join()


def test_a_long_command_that_was_cancelled_does_not_run() -> None:
    queue = CommandQueue()
    begun: list[str] = []
    copying = queue.call(_command(begun, "copy"), is_long=True)
    closing = queue.call(_command(begun, "close"))
    assert copying.cancel()
    assert not closing.cancel(), "it takes effect even if nobody waits for it"
    queue.run_waiting()
    assert begun == ["close"]


def test_what_waits_at_the_end_runs_and_later_ones_run_at_once() -> None:
    queue = CommandQueue()
    begun: list[str] = []
    queue.put(_command(begun, "long"), is_long=True)
    queue.put(_command(begun, "short"))
    queue.close()
    queue.put(_command(begun, "late"), is_long=True)
    assert begun == ["short", "long", "late"]
