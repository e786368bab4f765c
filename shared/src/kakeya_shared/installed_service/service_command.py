"""`kakeya COMMAND install-service` and its kin: a command becomes a service of the host, is shown, and is removed."""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from kakeya_shared.installed_service import files, logged_run, variables
from kakeya_shared.installed_service.host import Host
from kakeya_shared.installed_service.manager import Manager, manager
from kakeya_shared.installed_service.service import Activity, Scope, Service, ServiceError, State
from kakeya_shared.installed_service.verbs import VERBS
from kakeya_shared.settings import typed_flags
from kakeya_shared.settings.service import ServiceSettings

EXIT_FAILURE = 1
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


Settings = TypeVar("Settings", bound=ServiceSettings)


@dataclass(frozen=True)
class Installable(Generic[Settings]):
    """A command that can be a service.

    Attributes:
        command: what `kakeya` is told.
        settings: by which its flags are checked.
        variables: how the names of the variables begin that it reads, and the processes that it starts.
        stop_seconds: how long it may take to end, by its settings.
    """

    command: str
    settings: type[Settings]
    variables: tuple[str, ...]
    stop_seconds: Callable[[Settings], float]


def run(what: Installable[Any], argv: list[str], host: Host | None = None) -> int:
    """Runs one of VERBS and returns the exit status.

    Args:
        host: where; None: this one.
    """
    verb, words = argv[0], argv[1:]
    flags, others = _parser(what, verb).parse_known_args(words)
    if others and verb != "install-service":
        _parser(what, verb).error(f"unrecognized arguments: {' '.join(others)}")
    try:
        if verb == "run-service":
            return logged_run.run((*_program(), what.command), flags.variables, flags.log)
        command = _Command(what, host or Host.here(), flags)
        return {
            "install-service": lambda: command.install(others),
            "service-status": command.status,
            "restart-service": command.restart,
            "uninstall-service": command.uninstall,
        }[verb]()
    except ServiceError as error:
        print(f"kakeya {what.command}: error: {error}", file=sys.stderr)
        return EXIT_FAILURE


class _Command:
    """One run of one verb."""

    def __init__(self, what: Installable[Any], host: Host, flags: argparse.Namespace) -> None:
        self._what, self._host, self._flags = what, host, flags
        self._name = f"kakeya-{what.command}" + (f"-{flags.name}" if flags.name else "")
        self._scope = Scope(flags.scope) if flags.scope else _usual_scope(host, self._name, is_new="env" in flags)
        self._manager: Manager = manager(host, self._scope)

    def install(self, words: list[str]) -> int:
        settings = self._what.settings.parse(words)
        carried = variables.carried(self._host.environment, self._what.variables)
        typed = typed_flags.as_variables(self._what.settings, words)
        placed = typed_flags.placed(self._what.settings, carried)
        added = variables.asked_for(self._flags.env, self._host.environment)
        service = Service(
            name=self._name,
            program=_program(),
            command=self._what.command,
            variables=carried | placed | added | typed,
            scope=self._scope,
            run_as=self._run_as(),
            stop_seconds=int(self._what.stop_seconds(settings)),
        )
        if self._flags.dry_run:
            secret = typed_flags.secrets(self._what.settings)
            shown = {name for name in typed if name not in secret} | {"PATH"}
            self._print_files(service, shown)
            return 0
        self._write_and_start(service)
        return 0

    def status(self) -> int:
        state, last_line = State(Activity.NOT_INSTALLED), ""
        if self._is_installed:
            state = self._manager.state(self._name)
            last_line = "" if state.activity is Activity.RUNNING else self._manager.last_line(self._name)
        facts = {
            "service": self._name,
            "scope": self._scope.value,
            "state": state.activity.value,
            "pid": state.pid or None,
            "num_starts": state.num_starts,
            "exit_status": state.exit_status or None,
            "unit": str(self._manager.unit(self._name)),
            "variables": str(self._manager.variables(self._name)),
            "log": self._manager.log(self._name),
            "last_line": last_line or None,
        }
        if self._flags.json:
            print(json.dumps(facts, indent=2))
        elif state.activity is Activity.NOT_INSTALLED:
            print(f"{self._name}: {state}")
        else:
            self._print_state(state, last_line)
        return 0 if state.activity is Activity.RUNNING else EXIT_FAILURE

    def restart(self) -> int:
        self._demand_installed()
        self._check_rights("restart-service")
        self._manager.restart(self._name)
        print(f"{self._name}: {self._manager.state(self._name)}")
        return 0

    def uninstall(self) -> int:
        self._demand_installed()
        self._check_rights("uninstall-service")
        self._remove()
        print(f"{self._name}: removed")
        return 0

    @property
    def _is_installed(self) -> bool:
        return self._manager.unit(self._name).exists()

    def _demand_installed(self) -> None:
        if not self._is_installed:
            found = self._manager.unit(self._name)
            raise ServiceError(f"{self._name} is not installed for this {self._scope} ({found} is not there)")

    def _check_rights(self, verb: str) -> None:
        if self._scope is Scope.SYSTEM and self._host.uid:
            line = f"sudo {' '.join(_program())} {self._what.command} {verb} --system"
            raise ServiceError(f"only root changes services of the host: {line} ...")
        if self._scope is Scope.USER and self._host.sudo_user:
            raise ServiceError("with sudo it would be root's own: leave sudo out, or use --system")
        self._manager.check()

    def _run_as(self) -> str:
        asked: str = self._flags.run_as or ""
        if self._scope is Scope.USER:
            if asked:
                raise ServiceError("--run-as goes with --system; a user's own service runs as that user")
            return ""
        user = asked or self._host.sudo_user
        if not user:
            raise ServiceError("--system needs --run-as USER: whose files it may read and write (root, if you mean it)")
        return user

    def _write_and_start(self, service: Service) -> None:
        written = self._manager.files(service)
        self._check_rights("install-service")
        if self._is_installed and not self._flags.replace:
            cure = "--replace writes its files anew and starts it again, --name NAME installs another one beside it"
            raise ServiceError(f"{service.name} is installed already; {cure}")
        was_installed = self._is_installed
        files.write(written, self._host.directories)
        try:
            said = self._manager.start(service)
        except ServiceError as error:
            if not was_installed:
                self._take_back(error)
            raise
        for file in written:
            print(f"wrote {file.path}")
        print(f"variables: {' '.join(sorted(service.variables))}")
        for line in said:
            print(f"note: {line}", file=sys.stderr)
        self._print_state(self._manager.state(service.name), "")

    def _remove(self) -> None:
        self._manager.stop(self._name)
        self._remove_files(self._manager.forget(self._name))

    def _take_back(self, because: ServiceError) -> None:
        """As `_remove`, where it is not known how far its start has got: it may be nothing that can be stopped."""
        with contextlib.suppress(ServiceError):
            self._manager.stop(self._name)
        try:
            self._remove_files(self._manager.forget(self._name))
        except ServiceError as error:
            raise ServiceError(f"{because}; and what is written stays: {error}") from because

    def _remove_files(self, beside: Sequence[Path]) -> None:
        own = [self._manager.unit(self._name), self._manager.variables(self._name)]
        files.remove([*own, *beside], self._host.directories)

    def _print_files(self, service: Service, shown: set[str]) -> None:
        masked = {name: text if name in shown else variables.HIDDEN for name, text in service.variables.items()}
        for file in self._manager.files(replace(service, variables=masked)):
            mode = "0600" if file.is_private else "0644"
            print(f"# {file.path} (mode {mode}{f', of {file.owner}' if file.owner else ''})\n{file.text}")

    def _print_state(self, state: State, last_line: str) -> None:
        rows = [
            (self._name, str(state)),
            ("unit", str(self._manager.unit(self._name))),
            ("variables", str(self._manager.variables(self._name))),
            ("log", self._manager.log(self._name)),
            *([("last line", last_line)] if last_line else []),
        ]
        width = max(len(label) for label, _ in rows)
        for label, text in rows:
            print(f"{label:{width}}  {text}")


def _usual_scope(host: Host, name: str, *, is_new: bool) -> Scope:
    """The system's for root, else the user's; of one that is installed in the other one alone, that."""
    usual, other = (Scope.USER, Scope.SYSTEM) if host.uid else (Scope.SYSTEM, Scope.USER)
    is_there = {scope: manager(host, scope).unit(name).exists() for scope in Scope}
    return other if is_there[other] and not is_there[usual] and not is_new else usual


def _program() -> tuple[str, ...]:
    """What starts `kakeya` here, by its stable name: a link of Homebrew's or pipx' outlives what it points at."""
    started = sys.argv[0]
    if os.path.basename(started) == "kakeya" and (found := shutil.which(started)):
        return (os.path.abspath(found),)
    return (sys.executable, "-P", "-m", "kakeya")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: a-z, 0-9 and '-', at most 41 characters")
    return text


def _parser(what: Installable[Any], verb: str) -> argparse.ArgumentParser:
    flags_of = f"kakeya {what.command}"
    is_install = verb == "install-service"
    parser = argparse.ArgumentParser(
        prog=f"{flags_of} {verb}",
        description=f"{VERBS[verb].capitalize()}.",
        usage=f"%(prog)s [OPTIONS] [FLAGS OF `{flags_of}`]" if is_install else None,
        epilog=_INSTALL_EPILOG.format(flags_of=flags_of) if is_install else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if verb == "run-service":
        parser.add_argument("variables", type=Path, metavar="VARIABLES", help="the file of variables")
        parser.add_argument("log", type=Path, metavar="LOG", help="the file of the log")
        return parser
    scope = parser.add_mutually_exclusive_group()
    for each, meaning in _SCOPES.items():
        scope.add_argument(f"--{each.value}", dest="scope", action="store_const", const=each.value, help=meaning)
    parser.add_argument(
        "--name", type=_name, metavar="NAME", help=f"of one beside the first: kakeya-{what.command}-NAME"
    )
    if verb == "service-status":
        parser.add_argument("--json", action="store_true", help="print one JSON document, for programs")
    if is_install:
        _add_install_flags(parser)
    return parser


def _add_install_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--run-as", metavar="USER", help="with --system: whose process it is. Default: the user who called sudo"
    )
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]", help="a further variable; NAME takes it from here"
    )
    parser.add_argument("--replace", action="store_true", help="write the files of an installed one anew")
    parser.add_argument("--dry-run", action="store_true", help="print the files and do nothing; secrets are hidden")


_SCOPES = {
    Scope.USER: "a service of this user. Default, but for root",
    Scope.SYSTEM: "a service of this host, from boot on; it takes root. Default for root",
}
_INSTALL_EPILOG = """\
All other flags are those of `{flags_of}`. They are checked first and written as variables into a file
that its owner alone reads, with those of this environment that the command follows. Edit that file and
say `{flags_of} restart-service`. Paths are made absolute. Logs: the journal on Linux, on macOS four
files of 10 MiB at most.
"""
