"""`kakeya models`: models on this host, and those that are brought here."""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from kakeya_shared import installed_models, plugins
from kakeya_worker.command_logs import logged_from

SUMMARY = "bring a model to this host before it is needed, list those that are here, and check one"
EXIT_FAILURE = 1
EXIT_UNCHECKED = 3
EXIT_INTERRUPTED = 130
_EPILOG = """\
Models come from the Hugging Face Hub into its cache ($HF_HOME, else ~/.cache/huggingface), where workers find them.
A pull prints the directory. $HF_ENDPOINT names another hub, $HF_TOKEN a token, and HF_HUB_OFFLINE=1 asks none. A
download that was broken off goes on where it was. Every file's digest is checked. The list also shows Ollama's store
($OLLAMA_MODELS, else ~/.ollama/models), GGUF files below folders that are named, what each model would take here, and
what is kept of them.

Exit status: 0, 1 where a model is not here as a whole, or a checked one loses more than --max-kl, 3 where one cannot be
checked. A check takes four bytes a weight; variables of a worker (KAKEYA_WORKER_*) count.
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
    for name, run, about in (("pull", _pull, _PULL), ("list", _list, _LIST), ("check", _check, _CHECK)):
        verb = verbs.add_parser(
            name, help=about, description=f"{about.capitalize()}.", epilog=_EPILOG, formatter_class=form
        )
        verb.add_argument("--json", action="store_true", help="print one JSON document, for programs")
        verb.set_defaults(run=run)
        _FLAGS[name](verb)
    return parser


def _pull_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("model", metavar="MODEL", help="of the hub, such as Qwen/Qwen3-0.6B")
    verb.add_argument("--revision", metavar="NAME", help="a branch, a tag or a commit. Default: main")


def _list_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--folder", metavar="DIR", action="append", default=[], help="look for GGUF files below it, too; repeat it"
    )


def _check_flags(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("model", metavar="MODEL", help="as `kakeya worker --model` takes it")
    verb.add_argument("--text-file", type=Path, metavar="FILE", help="a text in UTF-8. Default: one that is shipped")
    verb.add_argument("--tokens", type=_positive, default=512, metavar="N", help="of the text, at most. Default 512")
    verb.add_argument("--weights", metavar="TYPE", help="as of a worker. Default: $KAKEYA_WORKER_WEIGHTS, else auto")
    verb.add_argument(
        "--max-kl",
        type=float,
        default=0.02,
        metavar="NATS",
        help="the mean that is still good. Default 0.02: ten times what int8 loses on a model of 135 M",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 2 on")
    return int(text)


_FLAGS = {"pull": _pull_flags, "list": _list_flags, "check": _check_flags}
_CHECK = "compare a model, as it runs here, with float32"
_PULL = "download what is missing of a model and check all of it"
_LIST = "list the models on this host"


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
        from kakeya_shared.gguf.gguf_error import GgufError
        from kakeya_shared.process.service_process import StartError
        from kakeya_worker.inventory import inventory

        with logged_from("error"):
            models = inventory.listed([Path(os.path.expanduser(folder)) for folder in flags.folder])
            kept = inventory.kept()
    except (ModuleNotFoundError, NotADirectoryError, plugins.PluginError, StartError, GgufError) as error:
        return _fail(f"the models cannot be listed: {error}")
    if flags.json:
        print(json.dumps(inventory.document(models, kept), indent=2))
    else:
        print("\n".join(inventory.tables(models, kept)))
    return 0


def _check(flags: argparse.Namespace) -> int:
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
    print(json.dumps(checked.document, indent=2) if flags.json else "\n".join(checked.lines))
    return 0 if checked.is_good else EXIT_FAILURE


def _report(line: str) -> None:
    print(f"kakeya models: {line}", file=sys.stderr, flush=True)


def _fail(line: str) -> int:
    _report(f"error: {line}")
    return EXIT_FAILURE
