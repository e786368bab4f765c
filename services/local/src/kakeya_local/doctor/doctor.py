"""`kakeya doctor`: what is installed, what answers, what is wrong and the cure."""

import json
from dataclasses import asdict

from rich.text import Text

from kakeya.cli.flags.connection import Connection
from kakeya_local.doctor.findings import Condition, Finding
from kakeya_local.doctor.installation import examine
from kakeya_local.doctor.reachability import probe_redis, probe_router
from kakeya_local.terminal import print_table

_STYLES = {Condition.OK: "green", Condition.ABSENT: "yellow", Condition.WRONG: "bold red"}


async def doctor(connection: Connection, *, asked_for: bool, redis: str | None, as_json: bool) -> int:
    """Prints the findings; the exit status is 1 where one is wrong.

    Args:
        asked_for: whether the user named the router, so that it is wrong where it does not serve.
    """
    findings = list(examine())
    findings += [finding async for finding in probe_router(connection, asked_for=asked_for)]
    if redis:
        findings.append(probe_redis(redis))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print_table(map(_cells, findings))
    return 1 if any(finding.condition is Condition.WRONG for finding in findings) else 0


def _cells(finding: Finding) -> tuple[str | Text, ...]:
    cure = f"\n-> {finding.cure}" if finding.cure else ""
    condition = Text(finding.condition, _STYLES[finding.condition])
    return finding.area, finding.subject, condition, finding.detail + cure
