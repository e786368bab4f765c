"""Puts the label `needs-mac-m4` on a pull request whose files ask for a Mac, or takes it off, and starts the Mac's run.

    python -m ops.github.mac_label --pull-request 12

The files are read over all their pages, and the old names of files that were moved count, too. GitHub tells 3,000 at
most: of a larger change what is not seen asks for a Mac. A label that a person has put on stays.

With the label on, the workflow mac-integration.yml is started through the API. GitHub starts no workflow for what its
own token does, such as putting a label on; workflow_dispatch is one of the two events for which it does. Without the
label the status `mac-integration` says that no Mac is needed, so a branch rule can require that status of every change.

It needs GITHUB_REPOSITORY and a GITHUB_TOKEN that may write pull requests, actions and statuses.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from ops.github import mac_paths, mac_status
from ops.github.api import Api, GitHubError

LABEL = "needs-mac-m4"
WORKFLOW = "mac-integration.yml"
OURSELVES = "github-actions[bot]"
"""Whose GITHUB_TOKEN is."""
_NUM_SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--pull-request", type=int, required=True, metavar="NUMBER", help="whose files are looked at")
    flags = parser.parse_args(arguments)
    try:
        for line in settle(Api.of_environment(), flags.pull_request):
            print(line)
    except GitHubError as error:
        print(f"mac_label: error: {error}", file=sys.stderr)
        return 1
    return 0


def settle(api: Api, number: int) -> Iterator[str]:
    """Does it; gives lines that say what was done. Raises GitHubError."""
    pull_request = api.get(f"pulls/{number}")
    reasons = why(api, pull_request)
    has = LABEL in {each["name"] for each in pull_request["labels"]}
    for reason in reasons[:_NUM_SHOWN]:
        yield f"asks for a Mac: {reason}"
    if len(reasons) > _NUM_SHOWN:
        yield f"and {len(reasons) - _NUM_SHOWN} more"
    if reasons and not has:
        api.send("POST", f"issues/{number}/labels", {"labels": [LABEL]})
        yield f"{LABEL}: added"
    elif has and not reasons and _is_ours(api, number):
        _take_off(api, number)
        yield f"{LABEL}: removed, as no file asks for a Mac any more"
        has = False
    else:
        yield f"{LABEL}: unchanged"
    if reasons or has:
        body = {"ref": pull_request["base"]["repo"]["default_branch"], "inputs": {"pull_request": str(number)}}
        api.send("POST", f"actions/workflows/{WORKFLOW}/dispatches", body)
        yield f"{WORKFLOW}: started"
    else:
        mac_status.say(api, pull_request["head"]["sha"], "success", "no file asks for a Mac")
        yield "no Mac is needed"


def why(api: Api, pull_request: dict[str, Any]) -> list[str]:
    """The files that ask for a Mac. Raises GitHubError."""
    names, num_files = [], 0
    for file in api.pages(f"pulls/{pull_request['number']}/files"):
        num_files += 1
        names += [file[key] for key in ("filename", "previous_filename") if key in file]
    unseen = pull_request["changed_files"] - num_files
    return mac_paths.asking(names) + ([f"{unseen} files that GitHub does not tell"] if unseen > 0 else [])


def _is_ours(api: Api, number: int) -> bool:
    """Whether the label was last put on by a workflow, not by a person."""
    actors = [
        (each["actor"] or {}).get("login")  # none: the account is gone
        for each in api.pages(f"issues/{number}/events")
        if each["event"] == "labeled" and each["label"]["name"] == LABEL
    ]
    return actors[-1:] == [OURSELVES]


def _take_off(api: Api, number: int) -> None:
    try:
        api.send("DELETE", f"issues/{number}/labels/{quote(LABEL)}")
    except GitHubError as error:
        if error.status != 404:  # a person was faster
            raise


if __name__ == "__main__":
    sys.exit(main())
