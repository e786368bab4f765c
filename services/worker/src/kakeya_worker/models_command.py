"""`kakeya models`: models on this host, and those that are brought here."""

import argparse
import json
import os
import sys
from pathlib import Path

from kakeya_shared import installed_models, plugins
from kakeya_worker.command_logs import logged_from

SUMMARY = "bring a model to this host before it is needed, list those that are here, and check one"
EXIT_FAILURE = 1
EXIT_UNCHECKED = 3
EXIT_INTERRUPTED = 130


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kakeya models", description=f"{SUMMARY.capitalize()}.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, (run, about) in _VERBS.items():
        verbs.add_parser(name, help=about, add_help=False).set_defaults(run=run)
    run = parser.parse_args(argv[:1]).run  # what follows is the verb's own to read
    status: int = run(argv[1:])
    return status


def _pull(argv: list[str]) -> int:
    from kakeya_worker.inventory_settings import PullSettings

    settings = PullSettings.parse(argv)
    if os.path.isdir(os.path.expanduser(settings.model)):
        return _fail(f"{settings.model} is a directory of this host: nothing is to be pulled")
    if settings.model in installed_models.names():
        return _fail(f"{settings.model} is installed on this host: nothing is to be pulled")
    # Not before: it takes long, and `kakeya --help` must not wait for it.
    try:
        from kakeya_worker.hub.hub_error import HubError
        from kakeya_worker.hub.pull import pull
    except ModuleNotFoundError as error:
        return _fail(f"needs the module {error.name!r}: pip install 'kakeya-worker[torch]' (or [mlx])")
    try:
        pulled = pull(settings.model, settings.revision, _report)
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
    print(json.dumps(facts, indent=2) if settings.print_json else pulled.directory)
    return 0


def _list(argv: list[str]) -> int:
    from kakeya_worker.inventory_settings import ListSettings

    settings = ListSettings.parse(argv)
    try:
        from kakeya_shared.gguf.gguf_error import GgufError
        from kakeya_shared.process.service_process import StartError
        from kakeya_worker.engine.seams.verifier import ModelRefused
        from kakeya_worker.inventory import inventory

        folders = [Path(os.path.expanduser(folder)) for folder in settings.folder]
        with logged_from("error"):
            models = inventory.listed(folders, settings.draft_model)
            kept = inventory.kept()
    except (ModuleNotFoundError, NotADirectoryError, plugins.PluginError, StartError, GgufError, ModelRefused) as error:
        return _fail(f"the models cannot be listed: {error}")
    if settings.print_json:
        print(json.dumps(inventory.document(models, kept), indent=2))
    else:
        print("\n".join(inventory.tables(models, kept)))
    return 0


def _check(argv: list[str]) -> int:
    from kakeya_worker.inventory_settings import CheckSettings

    flags = CheckSettings.parse(argv)
    try:
        from kakeya_worker.model_check.model_check import CheckError, check
        from kakeya_worker.settings import WorkerSettings
    except ModuleNotFoundError as error:
        _fail(f"needs the module {error.name!r}: pip install 'kakeya-worker[torch]' (or [mlx])")
        return EXIT_UNCHECKED
    weights = [f"--weights={flags.weights}"] if flags.weights else []
    settings = WorkerSettings.parse([f"--model={flags.model}", *weights])
    try:
        with logged_from("info"):
            checked = check(settings, flags.text_file, flags.tokens, flags.max_kl, _report)
    except CheckError as error:
        _fail(str(error))
        return EXIT_UNCHECKED
    print(json.dumps(checked.document, indent=2) if flags.print_json else "\n".join(checked.lines))
    return 0 if checked.is_good else EXIT_FAILURE


_VERBS = {
    "pull": (_pull, "download what is missing of a model and check all of it"),
    "list": (_list, "list the models on this host"),
    "check": (_check, "compare a model, as it runs here, with float32"),
}


def _report(line: str) -> None:
    print(f"kakeya models: {line}", file=sys.stderr, flush=True)


def _fail(line: str) -> int:
    _report(f"error: {line}")
    return EXIT_FAILURE
