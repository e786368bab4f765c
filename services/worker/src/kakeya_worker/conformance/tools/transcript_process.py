"""Transcripts made in another process, whose environment makes other instructions run.

`python -m kakeya_worker.conformance.tools.transcript_process` reads jobs from standard input and prints transcripts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kakeya_worker.conformance.declaration import Mode
from kakeya_worker.conformance.tools.bit_variants import BIT_VARIANTS
from kakeya_worker.conformance.tools.circumstances import Circumstances, VerifierConversation
from kakeya_worker.conformance.tools.subject import Case, Subject
from kakeya_worker.conformance.tools.transcript import Transcript, transcript


@dataclass(frozen=True)
class Job:
    """One transcript.

    Attributes:
        plugin: of the verifier.
        variant: the name of one of BIT_VARIANTS.
        directory: of its checkpoint.
    """

    plugin: str
    mode: Mode
    variant: str
    directory: str
    circumstances: Circumstances

    def run(self) -> Transcript:
        """Holds the conversation in this process."""
        variant = next(variant for variant in BIT_VARIANTS if variant.name == self.variant)
        subject = Subject(Case(self.plugin, variant, self.mode), Path(self.directory))
        verifier = subject.load(num_threads=self.circumstances.num_threads)
        return transcript(VerifierConversation(verifier, self.circumstances), variant)


def run_elsewhere(jobs: Sequence[Job], environment: Mapping[str, str]) -> list[Transcript]:
    """Runs jobs in a process of their own.

    Args:
        environment: variables that this process does not have.

    Raises:
        subprocess.CalledProcessError: the process failed; its standard error is this process's.
    """
    process = subprocess.run(  # noqa: S603  # this module
        [sys.executable, "-P", "-m", __name__],
        input=json.dumps([asdict(job) for job in jobs]),
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
        text=True,
        check=True,
    )
    transcripts: list[Transcript] = json.loads(process.stdout.splitlines()[-1])  # whatever is logged comes before
    return transcripts


def _job(plugin: str, mode: dict[str, str], variant: str, directory: str, circumstances: dict[str, int]) -> Job:
    return Job(plugin, Mode(**mode), variant, directory, Circumstances(**circumstances))


if __name__ == "__main__":
    print(json.dumps([_job(**job).run() for job in json.load(sys.stdin)]))
