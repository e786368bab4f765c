"""`kakeya worker`."""

from kakeya_shared.process import service_process
from kakeya_worker.settings import WorkerSettings

SUMMARY = "serve a model from this host: a verifier worker that joins a router"


def main(argv: list[str]) -> int:
    settings = WorkerSettings.parse(argv)
    from kakeya_worker.program import serve  # not before: `kakeya --help` must not wait for gRPC and numpy

    return service_process.run("worker", settings.log_level, lambda stop: serve(settings, stop), settings.log_format)
