"""`kakeya run`."""

SUMMARY = "talk with a model: start what it takes, chat or answer once, and stop all of it"


def main(argv: list[str]) -> int:
    from kakeya_local.run.flags import parser

    flags = parser(SUMMARY).parse_intermixed_args(argv)  # a prompt may stand behind flags, too
    from kakeya_local.run.run import run

    return run(flags)
