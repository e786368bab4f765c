"""`kakeya router`."""

SUMMARY = "serve sessions: the router, with its state in Redis"


def main(argv: list[str]) -> int:
    """Runs until SIGINT or SIGTERM; returns the exit status."""
    from kakeya_router.program import serve
    from kakeya_router.settings import RouterSettings
    from kakeya_shared.process import service_process

    settings = RouterSettings.parse(argv)
    return service_process.run("router", settings.log_level, lambda stop: serve(settings, stop), settings.log_format)
