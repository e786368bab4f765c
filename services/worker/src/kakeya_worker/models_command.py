"""`kakeya models`: models on this host, and those that are brought here."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from kakeya_shared import installed_models, plugins

SUMMARY = "bring a model to this host before it is needed, and list those that are here"
EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
_EPILOG = """\
Models come from the Hugging Face Hub into its cache ($HF_HOME, else ~/.cache/huggingface), where workers find them.
$HF_ENDPOINT names another hub, $HF_TOKEN a token, and HF_HUB_OFFLINE=1 asks none. A download that was broken off goes
on where it was. Every file's digest is checked. The list also shows Ollama's store ($OLLAMA_MODELS, else
~/.ollama/models), and GGUF files below folders that are named. Exit status: 0, 1 where a model is not here as a whole.
"""


def main(argv: list[str]) -> int:
    flags = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = flags.run
    return run(flags)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="kakeya models", description=f"{SUMMARY.capitalize()}.", epilog=_EPILOG, formatter_class=form
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, run, about in (("pull", _pull, _PULL), ("list", _list, _LIST)):
        verb = verbs.add_parser(
            name, help=about, description=f"{about.capitalize()}.", epilog=_EPILOG, formatter_class=form
        )
        verb.add_argument("--json", action="store_true", help="print one JSON document, for programs")
        verb.set_defaults(run=run)
        if run is _list:
            verb.add_argument(
                "--folder",
                metavar="DIR",
                action="append",
                default=[],
                help="look for GGUF files below it, too; repeat it",
            )
        if run is _pull:
            verb.add_argument("model", metavar="MODEL", help="of the hub, such as Qwen/Qwen3-0.6B")
            verb.add_argument("--revision", metavar="NAME", help="a branch, a tag or a commit. Default: main")
    return parser


_PULL = "download what is missing of a model and check all of it; its directory is printed"
_LIST = "list the models that are on this host"


def _pull(flags: argparse.Namespace) -> int:
    if os.path.isdir(os.path.expanduser(flags.model)):
        return _fail(f"{flags.model} is a directory of this host: nothing is to be pulled")
    if flags.model in installed_models.names():
        return _fail(f"{flags.model} is installed on this host: nothing is to be pulled")
    # Not before: it takes long, and `kakeya --help` must not wait for it.
    try:
        from kakeya_worker.hub.hub_error import HubError
        from kakeya_worker.hub.pull import pull
    except ModuleNotFoundError as error:
        return _fail(f"needs the module {error.name!r}: pip install 'kakeya-worker[torch]' (or [mlx])")
    try:
        pulled = pull(flags.model, flags.revision, _report)
    except HubError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _report("stopped; what has come is kept, and the next pull goes on from there")
        return EXIT_INTERRUPTED
    facts = {
        "model": pulled.model,
        "directory": str(pulled.directory),
        "num_bytes": pulled.num_bytes,
        "num_downloaded_bytes": pulled.num_downloaded,
    }
    _report(f"{pulled.model} is here, {pulled.num_bytes:,} bytes, of which {pulled.num_downloaded:,} came now")
    print(json.dumps(facts, indent=2) if flags.json else pulled.directory)
    return 0


def _list(flags: argparse.Namespace) -> int:
    try:
        from kakeya_worker.models.local_models import local_models

        found = list(local_models([Path(os.path.expanduser(folder)) for folder in flags.folder]))
    except (ModuleNotFoundError, NotADirectoryError, plugins.PluginError) as error:
        return _fail(f"the models cannot be listed: {error}")
    if flags.json:
        documents = [
            {
                "model": each.model,
                "revision": each.revision,
                "family": each.family or None,
                "quantization": each.quantization or None,
                "num_bytes": each.num_bytes,
                "directory": str(each.directory),
                "problem": each.problem or None,
                "note": each.note or None,
            }
            for each in found
        ]
        print(json.dumps(documents, indent=2))
        return 0
    rows = [("MODEL", "REVISION", "FAMILY", "QUANTIZATION", "BYTES", "STATE", "DIRECTORY")]
    rows += [
        (
            each.model,
            each.revision,
            each.family or "-",
            each.quantization or "-",
            f"{each.num_bytes:,}",
            each.problem or each.note or "whole",
            str(each.directory),
        )
        for each in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _report(line: str) -> None:
    print(f"kakeya models: {line}", file=sys.stderr, flush=True)


def _fail(line: str) -> int:
    _report(f"error: {line}")
    return EXIT_FAILURE
