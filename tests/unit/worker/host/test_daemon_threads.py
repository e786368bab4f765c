"""Work in threads that nobody has to wait for."""

import os
import sys
import threading
from concurrent.futures import CancelledError

import pytest

from kakeya_worker.host.daemon_threads import DaemonThreads
from tests.unit.worker.engine_calls import TIMEOUT


def test_work_is_done_in_other_threads_and_its_errors_are_told() -> None:
    threads = DaemonThreads(2, "test")
    both = threading.Barrier(2)
    for future in [threads.submit(lambda: both.wait(TIMEOUT)) for _ in range(2)]:
        future.result(TIMEOUT)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(TIMEOUT)
    assert threads.submit(lambda: threading.current_thread().daemon).result(TIMEOUT)
    assert threads.close(TIMEOUT)


def test_threads_begin_with_the_first_work() -> None:
    before = set(threading.enumerate())
    threads = DaemonThreads(2, "test")
    assert not set(threading.enumerate()) - before
    threads.submit(lambda: None).result(TIMEOUT)
    threads.submit(lambda: None).result(TIMEOUT)
    assert len(set(threading.enumerate()) - before) == 2
    assert threads.close(TIMEOUT)
    assert DaemonThreads(2, "test").close(TIMEOUT), "there may have been none"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness for each thread")
def test_threads_stand_back_behind_the_others() -> None:
    threads = DaemonThreads(1, "test", niceness=3)
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    theirs = threads.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result(TIMEOUT)
    assert theirs == min(own + 3, 19)  # there is none beyond
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own
    assert threads.close(TIMEOUT)


def test_what_was_begun_is_waited_for_and_the_rest_is_cancelled() -> None:
    threads = DaemonThreads(1, "test")
    begun, freed = threading.Event(), threading.Event()

    def hangs() -> str:
        begun.set()
        assert freed.wait(TIMEOUT)
        return "done"

    running, waiting = threads.submit(hangs), threads.submit(lambda: "never")
    assert begun.wait(TIMEOUT)
    assert not threads.close(0.05)
    for future in (waiting, threads.submit(lambda: "too late")):
        with pytest.raises(CancelledError):
            future.result(TIMEOUT)
    freed.set()
    assert running.result(TIMEOUT) == "done"
    assert threads.close(TIMEOUT)


def test_who_does_not_wait_any_more_has_nothing_done() -> None:
    threads = DaemonThreads(1, "test")
    freed, done = threading.Event(), threading.Event()
    threads.submit(lambda: freed.wait(TIMEOUT))
    assert threads.submit(done.set).cancel()
    freed.set()
    threads.submit(lambda: None).result(TIMEOUT)
    assert not done.is_set()
    assert threads.close(TIMEOUT)
