"""`python -m kakeya_local.stack.supervision.supervisord FILE`: supervisord, by a file of `supervisor_config`."""

import io
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from supervisor.options import ServerOptions
from supervisor.supervisord import go

from kakeya_local.stack.supervision.supervisor_config import SupervisorConfig


class Options(ServerOptions):
    """supervisord's options, of which paths and command lines are set as values, in no syntax."""

    first, test = True, False  # which supervisord's own `main` sets

    def read_config(self, fp: str) -> Any:
        """Called by supervisord. ValueError, which it expects, where the file cannot be used."""
        config = SupervisorConfig.read(Path(fp))
        section = super().read_config(io.StringIO(config.text))
        section.logfile, section.pidfile = config.log, config.pid_file
        (server,) = section.server_configs
        server["file"] = config.socket
        for group in section.process_group_configs:
            for process in group.process_configs:
                process.command = shlex.join(config.commands[process.name])
                process.stdout_logfile = config.logs[process.name]
        return section

    def setsignals(self) -> None:
        """Called by supervisord. What is ignored at the start stays ignored, here and in what it starts."""
        ignored = [number for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN]
        super().setsignals()
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def main(file: str) -> None:
    options = Options()
    options.realize(["-c", file], doc=__doc__)
    go(options)
    options.close_httpservers()
    options.close_logger()


if __name__ == "__main__":
    main(sys.argv[1])
