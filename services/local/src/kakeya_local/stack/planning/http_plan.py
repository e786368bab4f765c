"""The HTTP shim of a stack, as it will run, and what clients call the model."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kakeya.text import template_files
from kakeya.text.tokenizer_error import TokenizerError
from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance, http_entrance
from kakeya_local.stack.planning.ports import Ports, reachable
from kakeya_local.stack.program import Program, http_program
from kakeya_shared.contract import labels
from kakeya_shared.gguf import model_names
from kakeya_shared.settings.addresses import HostPort, is_loopback

TOKENIZER_VARIABLE = "KAKEYA_HTTP_TOKENIZER"
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "spiece.model")


@dataclass(frozen=True)
class HttpPlan:
    """An HTTP shim that can be started.

    Attributes:
        bind: where it listens.
        entrance: how clients on this machine reach it.
        model: what clients call the model.
        tokenizer: of that, as a flag; None where the shim's own variable tells it.
        chat_template: likewise, where one takes the place of the model's own.
    """

    bind: HostPort
    entrance: HttpEntrance
    model: str
    tokenizer: str | None
    chat_template: str | None = None

    @classmethod
    def make(
        cls,
        wanted: str,
        router: HostPort,
        model: str,
        environment: Mapping[str, str],
        ports: Ports,
        *,
        template_file: Path | None = None,
    ) -> Self:
        """Takes the port, and looks for what the shim will need.

        Args:
            wanted: HOST:PORT.
            router: where the router will listen.
            model: a directory, a GGUF file, a name of Ollama's or a hub id.
            template_file: with the chat template to take in place of the model's own.

        Raises:
            StackError: the port is taken, the model has no tokenizer, the chat template is none, or a certificate is of
                no use.
        """
        bind = _claim(wanted, router, ports)
        entrance = http_entrance(reachable(bind), environment)
        name, tokenizer = served_name(model, environment), tokenizer_pair(model, environment)
        return cls(bind, entrance, name, tokenizer, template_pair(name, template_file) if template_file else None)

    def program(self, router: HostPort) -> Program:
        """The process to run, in front of a router.

        Outside loopback the shim is told that this is meant: it cannot know that its router asks for keys, which
        `UpSettings` has looked after.
        """
        insecure = not is_loopback(self.bind.host)
        return http_program(
            self.bind, router, tokenizer=self.tokenizer, chat_template=self.chat_template, insecure=insecure
        )


def _claim(wanted: str, router: HostPort, ports: Ports) -> HostPort:
    try:
        bind = ports.claim(HostPort.parse(wanted))
    except StackError as error:
        raise StackError(f"{error}; choose another --http-bind, or `none`") from error
    if bind == router:
        raise StackError(f"--bind and --http-bind are both {bind}")
    return bind


def served_name(model: str, environment: Mapping[str, str]) -> str:
    """As the workers of this environment name a model. Raises StackError."""
    name = environment.get("KAKEYA_WORKER_SERVED_MODEL_NAME") or model_names.served_name(model)
    if flaw := labels.flaw(name, labels.MAX_MODEL_BYTES):
        raise StackError(f"the model's name {name!r}: {flaw}; KAKEYA_WORKER_SERVED_MODEL_NAME gives it another")
    return name


def tokenizer_pair(model: str, environment: Mapping[str, str]) -> str | None:
    """NAME=MODEL for the HTTP shim; None where the environment tells it already.

    Raises:
        StackError: the model brings no tokenizer, or cannot be said in this form.
    """
    if environment.get(TOKENIZER_VARIABLE):
        return None
    name = served_name(model, environment)
    if os.path.isdir(model) and not any(next(Path(model).glob(files), None) for files in _TOKENIZER_FILES):
        raise StackError(
            f"the model directory {model} holds no tokenizer, which HTTP needs; name one by "
            f"{TOKENIZER_VARIABLE}={name}=DIR, or do without HTTP (--http-bind none)"
        )
    return _pair(name, model)


def template_pair(name: str, file: Path) -> str:
    """NAME=FILE for the HTTP shim. Raises StackError: it is no chat template, or cannot be said in this form."""
    path = Path(os.path.abspath(os.path.expanduser(file)))
    try:
        template_files.read(path)
    except TokenizerError as error:
        raise StackError(str(error)) from error
    return _pair(name, str(path))


def _pair(name: str, place: str) -> str:
    pair = f"{name}={place}"
    if "=" in name or "," in pair or pair != pair.strip():
        reason = "a comma or `=` in its name or path, or a blank at the end of one"
        raise StackError(f"HTTP cannot serve {place}: {reason} (--http-bind none)")
    return pair
