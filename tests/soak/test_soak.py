"""What all proofs have in common: flags, progress, the report, the exit status."""

import io
import json
import re
import time
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from kakeya_bench.report import progress as lines
from kakeya_shared.settings.service import setting
from tests.integration.leftovers import Pool
from tests.integration.processes import Runtime
from tests.redis_server import LocalRedis
from tests.soak import progress, run
from tests.soak.__main__ import PROOFS, main, proof
from tests.soak.progress import Progress, watched
from tests.soak.proof import SeededProof
from tests.soak.report import Report, Tally
from tests.soak.run import Run
from tests.soak.witness import Witness


class ToyProof(SeededProof):
    """Finds what it is told to."""

    SEED: ClassVar = "TOY_SEED"
    model_config = SeededProof.named("toy")

    found: int = setting(0, "how much", unit="violations", reason="all is well", ge=0)
    late: bool = setting(False, "whether something is late", reason="all is well")

    def prove(self, directory: Path, progress: Progress) -> Report:
        """In no time."""
        tally = Tally()
        tally.violate(*["a lane is left"] * self.found, kind="lanes")
        tally.count("Append", "OK", "valid")
        facts = {"seed": self.seed, "by_method": tally.by_what(), "errors": ["[/red] gone"], "refusals": {"full": 2}}
        return Report(facts, tally.violations, tally.num_violations, ["p99 is 9 s"] * self.late)


@pytest.mark.parametrize(("flags", "status"), [([], 0), (["--found=1"], 1), (["--late"], 1)])
def test_the_exit_status_says_whether_the_proof_is_kept(flags: list[str], status: int) -> None:
    assert ToyProof.parse(flags).main() == status


def test_what_was_found_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ToyProof.parse(["--seed=7", "--found=9", f"--json={tmp_path / 'toy.json'}"]).main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "TOY_SEED=7"
    assert printed[-6:] == ["VIOLATION: a lane is left"] * 5 + ["verdict: BROKEN, 9 violations"]
    assert {"seed: 7", "errors: 1", "    [/red] gone", "refusals: full=2"} <= set(printed)
    assert ["Append", "1"] in [line.split() for line in printed]
    written = json.loads((tmp_path / "toy.json").read_text())
    assert (written["by_method"], written["num_violations"]) == ({"Append": {"OK": 1}}, 9)
    assert len(written["violations"]) == 5


@pytest.mark.parametrize("stays", [False, True])
def test_what_a_look_found_that_was_long_in_coming_is_looked_at_once_more(
    stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0

    def look(made: Runtime, pool: Pool) -> list[str]:
        nonlocal number
        number += 1
        if number == 1:
            time.sleep(0.2)  # longer than there is time
        return ["a lane"] if stays or number == 1 else []

    monkeypatch.setattr(run, "leftovers", look)  # no real one is slow when it is told to
    judged = Run(Runtime(redis=LocalRedis("", tmp_path), model=tmp_path, directory=tmp_path), Progress())
    judged.pool = Pool("default")
    found, passed = judged.leave_nothing(0.1)
    assert (found, number) == (["a lane"] if stays else [], 2)
    assert [re.sub(r"[\d.]+ s", "_", told) for told in judged.tally.violations] == [
        f"left over after _, looks of _: {what}" for what in found
    ]
    assert passed > 0.2


def test_a_variable_is_as_good_as_a_flag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KAKEYA_SOAK_SEED", "3")
    monkeypatch.setenv("KAKEYA_SOAK_LOGS", str(tmp_path / "logs"))
    asked = ToyProof.parse([])
    assert asked.main() == 0
    assert (asked.seed, (tmp_path / "logs").is_dir()) == (3, True)


def test_seeds_differ() -> None:
    assert len({ToyProof().seed for _ in range(9)}) > 1


@pytest.mark.parametrize("name", PROOFS)
def test_each_proof_says_what_it_takes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    assert f"python -m tests.soak {name}" in capsys.readouterr().out
    assert issubclass(proof(name), SeededProof) is (name != "overload-http")


def test_a_proof_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peace"]) == main([]) == 2
    assert "usage: python -m tests.soak {chaos,crowd-http,cuts,fuzz," in capsys.readouterr().err


def test_a_line_says_what_is_done_and_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(lines, "LINE_SECONDS", 0.0)
    file = io.StringIO()

    def wait_for(words: str) -> None:
        while words not in file.getvalue():  # the test's time-out ends what never comes
            time.sleep(0.001)

    with watched(Console(file=file), "chaos") as run:
        wait_for("starting")
        run.begin(24, "conversations", lambda: 24, lambda: 0)
        wait_for("100%")
        run.begin(200, "faults", lambda: 50, lambda: 2)
        wait_for("25%")
        run.what = "kill -9 a worker"
        wait_for("kill")
    said = [re.sub(r"about \d+ s", "about so many s", line) for line in file.getvalue().splitlines()]
    assert list(dict.fromkeys(said)) == [
        "chaos: 0%, starting",
        "chaos: 100%, about so many s left; 24 of 24 conversations; no violations so far",
        "chaos: 25%, about so many s left; 50 of 200 faults; 2 violations so far",
        "chaos: 25%, about so many s left; 50 of 200 faults; kill -9 a worker; 2 violations so far",
    ]


async def test_a_witness_tells_what_differs() -> None:
    class Counting(Witness[int]):
        async def _answer(self, number: int) -> int:
            return number

    witness = Counting()
    for _ in range(3):
        await witness.ask()
    assert witness.differences([0, 7, 2]) == ["answer 1 of the witness is 1, not 7"]
