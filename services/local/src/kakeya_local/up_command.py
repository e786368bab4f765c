"""`kakeya up`."""

from kakeya_shared.installed_service.verbs import is_verb

SUMMARY = "start a whole Kakeya on this machine: Redis, router, workers and the HTTP shim"
_NUM_STOPPED_IN_TURN = 6  # Prometheus, the HTTP shim, workers, the router, Redis, the collector


def main(argv: list[str]) -> int:
    import asyncio

    if is_verb(argv):
        return _service(argv)
    from kakeya_local.settings import UpSettings

    settings = UpSettings.parse(argv)
    from kakeya_local.up.up import up

    return asyncio.run(up(settings))


def _service(argv: list[str]) -> int:
    from kakeya_local.settings import UpSettings
    from kakeya_shared.installed_service.service_command import Installable, run

    return run(
        Installable[UpSettings](
            command="up",
            settings=UpSettings,
            variables=("KAKEYA_UP_", "KAKEYA_ROUTER_", "KAKEYA_WORKER_", "KAKEYA_HTTP_", "KAKEYA_TLS_"),
            stop_seconds=lambda settings: (_NUM_STOPPED_IN_TURN + 1) * settings.stop_grace_seconds,
        ),
        argv,
    )
