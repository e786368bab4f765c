"""`kakeya http`."""

SUMMARY = "serve OpenAI's HTTP API in front of a router"


def main(argv: list[str]) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit status."""
    from kakeya_http_shim.launcher_flags import without_launcher_flags
    from kakeya_http_shim.program import serve
    from kakeya_http_shim.settings import HttpSettings
    from kakeya_shared.process import service_process

    settings = HttpSettings.parse(without_launcher_flags(argv))
    return service_process.run("http", settings.log_level, lambda stop: serve(settings, stop))
