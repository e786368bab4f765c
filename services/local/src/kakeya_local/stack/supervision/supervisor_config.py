"""What supervisord is to run, in a file that `kakeya_local.stack.supervision.supervisord` reads.

supervisord's own files have a syntax in which ` #`, `;`, `%` and the ends of lines mean something and which cannot
write all paths. So the text in its syntax holds only what is ours to choose; paths and command lines, which hold what
users have chosen, stand beside it, as JSON.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from kakeya_local.stack.data_directory import DataDirectory
from kakeya_local.stack.program import Program
from kakeya_local.stack.supervision import bound_process
from kakeya_shared.process.service_process import EXIT_CONFIG

_LOG_BYTES = 10 << 20
_NUM_OLD_LOGS = 3


@dataclass(frozen=True)
class SupervisorConfig:
    """The whole configuration.

    Attributes:
        text: in supervisord's syntax, but for what follows.
        log: of supervisord itself.
        pid_file: where it says its process id.
        socket: where it listens.
        commands: by name of the program.
        logs: likewise.
    """

    text: str
    log: str
    pid_file: str
    socket: str
    commands: dict[str, list[str]]
    logs: dict[str, str]

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), "ascii")

    @classmethod
    def read(cls, path: Path) -> "SupervisorConfig":
        return cls(**json.loads(path.read_text("ascii")))


def socket_path(directory: DataDirectory) -> Path:
    return directory.runtime / "supervisor.sock"


def configure(programs: Iterable[Program], directory: DataDirectory, *, stop_grace_seconds: int) -> SupervisorConfig:
    """The programs of one stage are stopped together, the last stage first."""
    ordered = sorted(programs, key=lambda program: program.stage)
    sections = [_SERVER]
    for stage, members in groupby(ordered, lambda program: program.stage):
        of_stage = list(members)
        sections += [_program(program, stop_grace_seconds) for program in of_stage]
        names = ",".join(program.name for program in of_stage)
        sections.append(_section(f"group:{stage.name.lower()}", programs=names, priority=stage.value))
    return SupervisorConfig(
        text="\n".join(sections),
        log=str(directory.log("supervisor")),
        pid_file=str(directory.runtime / "supervisor.pid"),
        socket=str(socket_path(directory)),
        commands={program.name: list(bound_process.command(*program.command)) for program in ordered},
        logs={program.name: str(directory.log(program.name)) for program in ordered},
    )


def _program(program: Program, stop_grace_seconds: int) -> str:
    return _section(
        f"program:{program.name}",
        command="to be set",
        # A process that ends is started again, a few times in a row at most, unless it says that this is in vain.
        autorestart="unexpected",
        exitcodes=EXIT_CONFIG,
        startsecs=program.start_seconds,
        startretries=3,
        stopwaitsecs=stop_grace_seconds,
        redirect_stderr="true",
        stdout_logfile_maxbytes=_LOG_BYTES,
        stdout_logfile_backups=_NUM_OLD_LOGS,
    )


def _section(title: str, /, **options: object) -> str:
    return "\n".join([f"[{title}]", *(f"{name}={value}" for name, value in options.items()), ""])


_SERVER = "\n".join(
    [
        _section(
            "supervisord",
            nodaemon="true",
            silent="true",
            logfile_maxbytes=_LOG_BYTES,
            logfile_backups=_NUM_OLD_LOGS,
            childlogdir="/",  # not used; by default the directory for temporary files, where `%` would mean something
            nocleanup="true",
        ),
        _section("unix_http_server", file="to be set", chmod="0700"),
        _section(
            "rpcinterface:supervisor",
            **{"supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"},
        ),
    ]
)
