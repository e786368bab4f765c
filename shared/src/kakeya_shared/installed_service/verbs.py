"""The verbs with which a command of ours is made a service of its host."""

VERBS = {
    "install-service": "have this host start it, now and at each boot, and again when it fails",
    "service-status": "say whether it runs, where its files are, and what it said last",
    "restart-service": "start it again: its variables have changed, or a new version is installed",
    "uninstall-service": "stop it and remove its files",
    "run-service": "what launchd runs: the service with its variables, and a log with a bound",
}


def is_verb(argv: list[str]) -> bool:
    """Whether a command line is one of `service_command.run`."""
    return argv[:1] != [] and argv[0] in VERBS
