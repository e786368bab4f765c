"""Python for child processes: of the folder that a command is started in nothing is imported.

`python -m` puts that folder first on the path: a redis.py or signal.py in it would be run in place of the library.
"""

import os
import sys
from collections.abc import Mapping


def module(name: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs a module."""
    return (sys.executable, "-P", "-m", name, *arguments)


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Variables to be changed, so that the same holds for the Pythons that child processes start in turn.

    An empty part of PYTHONPATH, as `PYTHONPATH=$PYTHONPATH:/my/modules` makes one, is the current folder, too.
    """
    parts = [part for part in inherited.get("PYTHONPATH", "").split(os.pathsep) if part]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(parts)}
