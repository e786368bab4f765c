"""The dashboards, one a module: what each panel asks of Prometheus, and what it means.

Gauges of a router are of the whole runtime, so that `max` is taken over routers; counters are each process's own, so
that their rates are summed (docs/metrics.md).
"""

from ops.grafana.boards.fleet import FLEET
from ops.grafana.boards.http import HTTP
from ops.grafana.boards.latency import LATENCY
from ops.grafana.boards.recovery import RECOVERY
from ops.grafana.boards.sessions import SESSIONS
from ops.grafana.boards.tenants import TENANTS

BOARDS = (FLEET, SESSIONS, LATENCY, RECOVERY, TENANTS, HTTP)
