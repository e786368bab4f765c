"""supervisord's configuration of a stack."""

import shlex
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from kakeya_local import bound_process
from kakeya_local.data_directory import DataDirectory
from kakeya_local.program import Program
from kakeya_shared.service_process import EXIT_CONFIG

_LOG_BYTES = 10 << 20
_NUM_OLD_LOGS = 3


def socket_path(directory: DataDirectory) -> Path:
    return directory.runtime / "supervisor.sock"


def render(programs: Iterable[Program], directory: DataDirectory, *, stop_grace_seconds: int) -> str:
    """The configuration file; the programs of one stage are stopped together, the last stage first."""
    sections = [_server(directory)]
    for stage, members in groupby(sorted(programs, key=lambda program: program.stage), lambda program: program.stage):
        of_stage = list(members)
        sections += [_program(program, directory, stop_grace_seconds) for program in of_stage]
        names = ",".join(program.name for program in of_stage)
        sections.append(_section(f"group:{stage.name.lower()}", programs=names, priority=stage.value))
    return "\n".join(sections)


def _server(directory: DataDirectory) -> str:
    supervisord = _section(
        "supervisord",
        nodaemon="true",
        silent="true",
        logfile=directory.log("supervisor"),
        logfile_maxbytes=_LOG_BYTES,
        logfile_backups=_NUM_OLD_LOGS,
        pidfile=directory.runtime / "supervisor.pid",
    )
    factory = {"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"}
    return "\n".join(
        [
            supervisord,
            _section("unix_http_server", file=socket_path(directory), chmod="0700"),
            _section("rpcinterface:supervisor", **factory),
        ]
    )


def _program(program: Program, directory: DataDirectory, stop_grace_seconds: int) -> str:
    return _section(
        f"program:{program.name}",
        command=shlex.join(bound_process.command(*program.command)),
        # A process that ends is started again, a few times in a row at most, unless it says that this is in vain.
        autorestart="unexpected",
        exitcodes=EXIT_CONFIG,
        startsecs=program.start_seconds,
        startretries=3,
        stopwaitsecs=stop_grace_seconds,
        redirect_stderr="true",
        stdout_logfile=directory.log(program.name),
        stdout_logfile_maxbytes=_LOG_BYTES,
        stdout_logfile_backups=_NUM_OLD_LOGS,
    )


def _section(title: str, /, **options: object) -> str:
    lines = [f"{name}={str(value).replace('%', '%%')}" for name, value in options.items()]
    return "\n".join([f"[{title}]", *lines, ""])
