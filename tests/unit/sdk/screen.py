"""A terminal for tests of the command, without anybody at it."""

import os
import sys
import threading
import time

import pytest


class Screen:
    """The other end of a terminal that this process's standard streams are tied to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._master, slave = os.openpty()
        self._shown = b""
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            # It stays open as long as the program that is tested writes to it.
            monkeypatch.setattr(sys, name, open(os.dup(slave), mode, encoding="utf-8"))  # noqa: SIM115
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        return self._shown.decode()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str, count: int = 1) -> None:
        deadline = time.monotonic() + 60
        while self.shown.count(text) < count:
            assert time.monotonic() < deadline, self.shown
            time.sleep(0.01)

    def close(self) -> None:
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            stream.close()
        self._reader.join(60)
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                self._shown += os.read(self._master, 65_536)
            except OSError:
                return  # the last stream is closed
