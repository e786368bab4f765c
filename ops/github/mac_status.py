"""What the Mac says of a commit: the status `mac-integration`, which a branch rule can require.

    python -m ops.github.mac_status --sha SHA --result success

A check run would not do. The Mac's workflow runs on the default branch, so GitHub would show its checks there.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from ops.github.api import Api, GitHubError

CONTEXT = "mac-integration"
RESULTS = {
    "success": ("success", "all of it holds"),
    "failure": ("failure", "something does not hold: see the summary of the run"),
    "cancelled": ("error", "cancelled: a newer run took its place, or the 90 minutes were over"),
    "skipped": ("error", "it did not run"),
}
"""Of a job of a workflow: state and description of a status."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--sha", required=True, metavar="SHA", help="the commit")
    parser.add_argument("--result", required=True, choices=list(RESULTS), help="of the job that ran on the Mac")
    flags = parser.parse_args(arguments)
    try:
        say(Api.of_environment(), flags.sha, *RESULTS[flags.result])
    except GitHubError as error:
        print(f"mac_status: error: {error}", file=sys.stderr)
        return 1
    return 0


def say(api: Api, sha: str, state: str, description: str) -> None:
    """Sets the status. Raises GitHubError."""
    body = {"state": state, "context": CONTEXT, "description": description}
    if target := run_url():
        body["target_url"] = target
    api.send("POST", f"statuses/{sha}", body)


def run_url() -> str | None:
    """Of the run that this is part of."""
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    server, repository, run = (os.environ.get(name) for name in names)
    return f"{server}/{repository}/actions/runs/{run}" if server and repository and run else None


if __name__ == "__main__":
    sys.exit(main())
