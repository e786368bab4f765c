"""`kakeya worker`."""

from kakeya_shared.installed_service.verbs import is_verb
from kakeya_shared.process import service_process
from kakeya_worker.settings import WorkerSettings

SUMMARY = "serve a model from this host: a verifier worker that joins a router"
_KILLED_AFTER_SECONDS = 15.0  # beyond its own grace, which ends it; this is for one that hangs


def main(argv: list[str]) -> int:
    if is_verb(argv):
        return _service(argv)
    settings = WorkerSettings.parse(argv)
    from kakeya_worker.program import serve  # not before: `kakeya --help` must not wait for gRPC and numpy

    return service_process.run("worker", settings.log_level, lambda stop: serve(settings, stop), settings.log_format)


def _service(argv: list[str]) -> int:
    from kakeya_shared.installed_service.service_command import Installable, run

    return run(
        Installable[WorkerSettings](
            command="worker",
            settings=WorkerSettings,
            variables=("KAKEYA_WORKER_",),
            stop_seconds=lambda settings: settings.shutdown_grace_seconds + _KILLED_AFTER_SECONDS,
        ),
        argv,
    )
