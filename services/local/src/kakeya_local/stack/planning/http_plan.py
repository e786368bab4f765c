"""The HTTP shim of a stack, as it will run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kakeya_local.errors import StackError
from kakeya_local.stack.planning.http_entrance import HttpEntrance, http_entrance
from kakeya_local.stack.planning.ports import claim, reachable
from kakeya_local.stack.planning.served_model import served_name, tokenizer_pair
from kakeya_local.stack.program import Program, http_program
from kakeya_shared.settings.addresses import HostPort, is_loopback


@dataclass(frozen=True)
class HttpPlan:
    """An HTTP shim that can be started.

    Attributes:
        bind: where it listens.
        entrance: how clients on this machine reach it.
        model: what clients call the model.
        tokenizer: of that, as a flag; None where the shim's own variable tells it.
    """

    bind: HostPort
    entrance: HttpEntrance
    model: str
    tokenizer: str | None

    @classmethod
    def make(cls, wanted: str, router: HostPort, model: str, environment: Mapping[str, str]) -> Self:
        """Takes the port, and looks for what the shim will need.

        Args:
            wanted: HOST:PORT.
            router: where the router will listen.
            model: a directory or a hub id.

        Raises:
            StackError: the port is taken, the model has no tokenizer, or a certificate is of no use.
        """
        bind = _claim(wanted, router)
        entrance = http_entrance(reachable(bind), environment)
        return cls(bind, entrance, served_name(model, environment), tokenizer_pair(model, environment))

    def program(self, router: HostPort) -> Program:
        """The process to run, in front of a router.

        Outside loopback the shim is told that this is meant: it cannot know that its router asks for keys, which
        `UpSettings` has looked after.
        """
        insecure = not is_loopback(self.bind.host)
        return http_program(self.bind, router, tokenizer=self.tokenizer, insecure=insecure)


def _claim(wanted: str, router: HostPort) -> HostPort:
    try:
        bind = claim(HostPort.parse(wanted))
    except StackError as error:
        raise StackError(f"{error}; choose another --http-bind, or `none`") from error
    if bind == router:
        raise StackError(f"--bind and --http-bind are both {bind}")
    return bind
