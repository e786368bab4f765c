"""Where the processes of a stack show their metrics."""

from collections.abc import Mapping, Sequence

from kakeya_local.errors import StackError
from kakeya_local.stack.planning.ports import Ports
from kakeya_shared.settings.addresses import NOWHERE, HostPort

_ANY_PORT = "127.0.0.1:0"
ROUTER_VARIABLE, WORKER_VARIABLE = "KAKEYA_ROUTER_METRICS_BIND", "KAKEYA_WORKER_METRICS_BIND"


def metrics_places(router: str, workers: Sequence[str], environment: Mapping[str, str], ports: Ports) -> dict[str, str]:
    """HOST:PORT by the name of the process; a process that shows none is not in it.

    Each has a port that is chosen here and stays the same when the process is started again, so that who reads it finds
    it. Where its service's variable names an address, it is that.

    Raises:
        StackError: a variable names no address that can be listened on, or one port for several workers.
    """
    places = {}
    for name, variable in ((router, ROUTER_VARIABLE), *((worker, WORKER_VARIABLE) for worker in workers)):
        told = environment.get(variable) or _ANY_PORT
        if told != NOWHERE:
            places[name] = str(_claimed(told, variable, ports))
    shared = {place for place in places.values() if [*places.values()].count(place) > 1}
    if shared:
        raise StackError(f"{WORKER_VARIABLE} names one port, {shared.pop()}, for several processes")
    return places


def _claimed(told: str, variable: str, ports: Ports) -> HostPort:
    try:
        return ports.claim(HostPort.parse(told))
    except (ValueError, StackError) as error:
        raise StackError(f"{variable}: {error}") from error
