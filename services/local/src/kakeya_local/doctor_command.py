"""`kakeya doctor`."""

import argparse
import sys

SUMMARY = "say what is installed, what is reachable, what is wrong, and the cure"
EXIT_USAGE = 2


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="kakeya doctor",
        description=SUMMARY,
        epilog="Exit status 1: something that a flag or a variable asked for is wrong, an installed model is damaged, "
        "or the disk of the data directory is full. Exit status 2: the flags make no sense.",
    )
    from kakeya.cli.flags import connection_flags
    from kakeya.cli.output.table import printable

    connection_flags.add(parser, default_address=None)
    parser.add_argument("--redis", metavar="URL", help="a Redis that must answer, as the router's --redis")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    arguments = parser.parse_args(argv)
    try:
        connection = connection_flags.read(arguments)
    except connection_flags.BadConnectionFlag as error:
        print(f"kakeya doctor: error: {printable(str(error))}", file=sys.stderr)
        return EXIT_USAGE
    import asyncio

    from kakeya_local.doctor.doctor import doctor

    asked_for = bool(arguments.address)
    return asyncio.run(doctor(connection, asked_for=asked_for, redis=arguments.redis, as_json=arguments.json))
