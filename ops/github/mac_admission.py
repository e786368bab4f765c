"""Says which commit the Mac is to run, and behind which environment; writes `sha` and `environment` to GITHUB_OUTPUT.

    python -m ops.github.mac_admission --pull-request 12      # without a number: the commit that the run was started on

A pull request of this repository runs in the environment `mac`, which anyone may use who can push here. One of a fork
runs in `mac-approval`, where a reviewer lets each commit in. GitHub makes an environment that is missing, without any
protection, so this looks first: unless `mac-approval` is there and has required reviewers, nothing of a fork runs.

It needs GITHUB_REPOSITORY and a GITHUB_TOKEN that may read pull requests and actions and write statuses. Exit status:
0, or 1 where the Mac is not to run.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ops.github import mac_status
from ops.github.api import Api, GitHubError

OPEN = "mac"
APPROVED = "mac-approval"
_SHA = re.compile(r"[0-9a-f]{40}")


class Refused(Exception):
    """The Mac is not to run it; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--pull-request", default="", metavar="NUMBER", help="what to run (default: this run's commit)")
    flags = parser.parse_args(arguments)
    try:
        sha, environment = admit(Api.of_environment(), flags.pull_request)
    except (GitHubError, Refused) as error:
        print(f"mac_admission: error: {error}", file=sys.stderr)
        return 1
    lines = f"sha={sha}\nenvironment={environment}\n"
    print(lines, end="")
    if output := os.environ.get("GITHUB_OUTPUT"):
        with Path(output).open("a") as file:
            file.write(lines)
    return 0


def admit(api: Api, number: str) -> tuple[str, str]:
    """The commit and the environment; the commit's status waits from now on. Raises GitHubError, Refused."""
    sha, environment = _of_pull_request(api, number) if number else (os.environ.get("GITHUB_SHA", ""), OPEN)
    if not _SHA.fullmatch(sha):
        raise Refused(f"{sha!r} is no commit")
    waits_for = "a reviewer and the Mac" if environment == APPROVED else "the Mac"
    mac_status.say(api, sha, "pending", f"waits for {waits_for}")
    return sha, environment


def _of_pull_request(api: Api, number: str) -> tuple[str, str]:
    if not number.isascii() or not number.isdigit():
        raise Refused(f"{number!r} is no number of a pull request")
    pull_request = api.get(f"pulls/{number}")
    if pull_request["state"] != "open":
        raise Refused(f"pull request {number} is {pull_request['state']}")
    head = pull_request["head"]
    if head["repo"] and head["repo"]["full_name"] == api.repository:  # none: the fork was deleted
        return head["sha"], OPEN
    if not _has_reviewers(api):
        raise Refused(
            f"pull request {number} comes from a fork, and the environment {APPROVED} has no required reviewers: "
            "Settings, Environments (ops/README.md says how)"
        )
    return head["sha"], APPROVED


def _has_reviewers(api: Api) -> bool:
    try:
        environment = api.get(f"environments/{APPROVED}")
    except GitHubError as error:
        if error.status != 404:
            raise
        return False
    rules = environment.get("protection_rules", [])
    return any(rule["type"] == "required_reviewers" and rule["reviewers"] for rule in rules)


if __name__ == "__main__":
    sys.exit(main())
