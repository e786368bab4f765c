"""A whole stack that speaks HTTP: kakeya-nano on a worker, a router that asks for keys, and `kakeya http`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from kakeya_shared import installed_models
from tests.integration.credentials import Operator, operator_of
from tests.integration.open_http import MODEL
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.integration.processes import Process, Runtime, asking_for_keys, runtime

ALIAS = "gpt-nano"
ABSENT = "kakeya-absent"  # the shim has a tokenizer for it, and no worker serves it


@dataclass(frozen=True)
class HttpStack:
    """What a test drives.

    Attributes:
        operator: makes keys.
        receiver: has the spans of all processes.
        key: one that may be used by anybody.
    """

    runtime: Runtime
    shim: Process
    operator: Operator
    receiver: OtlpReceiver
    key: str

    @property
    def base_url(self) -> str:
        return f"http://{self.shim.address}/v1"


@contextmanager
def http_stack(directory: Path, *flags: str, **environment_too: str) -> Iterator[HttpStack]:
    """With one worker of eight lanes, in exact mode, so that equal seeds give equal answers; stopped at the end.

    Args:
        flags: of the shim, which has no live sessions unless these say so: what most tests look at is one answer.
        environment_too: more variables of all processes.
    """
    model = installed_models.directory(MODEL)
    with otlp_receiver() as receiver:
        environment = asking_for_keys() | receiver.environment() | environment_too
        with (
            runtime(model, directory, num_workers=0, environment=environment) as made,
            operator_of(made) as operator,
        ):
            start_worker(made)
            names = ("--tokenizer", f"{ABSENT}={MODEL}", "--served-model-name", f"{ALIAS}={MODEL}")
            shim = made.start_http("--live-sessions=off", *names, *flags)
            made.wait_for_workers(1)
            yield HttpStack(made, shim, operator, receiver, operator.make_key("everybody"))


def start_worker(made: Runtime) -> Process:
    """As that of `http_stack`, to take its place."""
    return made.start_worker("--weights=int8")


def prompt_ids(*messages: tuple[str, str]) -> list[int]:
    """Roles and contents as kakeya-nano's chat template writes them, and the begin of an answer, in tokens."""
    said = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return text_ids(f"{said}<|im_start|>assistant\n")


def text_ids(text: str) -> list[int]:
    """By the model's tokenizer itself, without anything of Kakeya's."""
    tokenizer = Tokenizer.from_file(str(installed_models.directory(MODEL) / "tokenizer.json"))
    return list(tokenizer.encode(text).ids)
