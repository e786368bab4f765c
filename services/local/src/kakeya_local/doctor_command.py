"""`kakeya doctor`."""

import argparse

SUMMARY = "say what is installed, what is reachable, what is wrong, and the cure"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="kakeya doctor",
        description=SUMMARY,
        epilog="Exit status: 1 when something that was asked for by a flag is wrong, else 0.",
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="a router that must serve (default: look at :50051)")
    parser.add_argument("--redis", metavar="URL", help="a Redis that must answer, redis://[:PASSWORD@]HOST:PORT")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    arguments = parser.parse_args(argv)
    import asyncio

    from kakeya_local.doctor import doctor

    return asyncio.run(doctor(address=arguments.address, redis=arguments.redis, as_json=arguments.json))
