"""The line that `kakeya tokens create --print-join` gives is one that a worker takes, as a shell reads it."""

import shlex
from argparse import Namespace
from pathlib import Path

import pytest

from kakeya.cli.commands import tokens
from kakeya_stubs.admin.v1 import admin_pb2 as pb
from kakeya_worker.settings import WorkerSettings


def test_a_worker_takes_the_line_that_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    token = pb.Token(model="a model", pool="p", worker_id="it's")
    asked = Namespace(join="", address="r:1", tls_ca=Path("/x/ca.pem"), reverse=True)
    line = tokens._join_line(token, "kakeya_join_$x", asked)
    variable, kakeya, worker, *flags = shlex.split(line)
    assert (kakeya, worker) == ("kakeya", "worker")
    name, _, secret = variable.partition("=")
    monkeypatch.setenv(name, secret)
    settings = WorkerSettings.parse(flags)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "kakeya_join_$x"
    assert (settings.model, settings.join, settings.router_ca) == ("a model", "r:1", Path("ca.pem"))
    assert settings.reverse
    assert (settings.pool, settings.worker_id) == ("p", "it's")
