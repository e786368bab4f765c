"""The command: measures, says what was found, writes it down."""

import shutil
import sys
from dataclasses import replace

from kakeya_bench.engine.settings import EngineSettings


def main(argv: list[str]) -> int:
    """Runs the bench and returns its exit status."""
    settings = EngineSettings.parse(argv)
    # Not before: `--help` must not wait for what measures and draws.
    from kakeya_bench.engine import page, report
    from kakeya_bench.engine.plan import Plan
    from kakeya_bench.engine.run import played
    from kakeya_bench.report import console, files
    from kakeya_bench.report.verdict import EXIT_UNDECIDED, exit_status
    from kakeya_bench.rivals.command import BENCH, RivalFailed

    written, parts = settings.output / page.JSON_NAME, settings.output / page.PART_NAME
    try:
        files.prepare(settings.output)
        plan = replace(Plan(), num_rounds=settings.rounds)
        run = played(plan, BENCH / "engine", lambda run: files.write_json(parts, report.part(run)))
        document = report.document(run)
        files.write_all(written, document, page.files)
        parts.unlink()
    except (RivalFailed, files.NotWritable) as error:
        print(f"cannot measure: {error}", file=sys.stderr)
        return EXIT_UNDECIDED
    if settings.json_file:
        shutil.copy(written, settings.json_file)
    console.print_sections(*page.summary(document))
    return exit_status(report.judged(run)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
