"""`kakeya up`."""

SUMMARY = "start a whole Kakeya on this machine: Redis, router, workers and the HTTP shim"


def main(argv: list[str]) -> int:
    import asyncio

    from kakeya_local.settings import UpSettings

    settings = UpSettings.parse(argv)
    from kakeya_local.up.up import up

    return asyncio.run(up(settings))
