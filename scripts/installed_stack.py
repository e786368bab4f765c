"""A stack of what is installed in this environment: started, talked with over HTTP and over the SDK, examined, stopped.

    cd /tmp && ENVIRONMENT/bin/python .../scripts/installed_stack.py [COMMAND ...]

COMMAND is what the `kakeya` command is typed as; by default it is the one of the environment.

Needs kakeya-local and what that brings, nothing of this repository. `scripts/test_parts.py` runs it on wheels in an
environment that was empty.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

QUESTION = "What is 2 + 3?"
MODEL = "kakeya-nano"
_SECONDS = 120.0  # for whatever takes moments
_STARTED = "ready "


class StackFailed(Exception):
    """Something is not as it should be; the message says what."""


@contextmanager
def up(kakeya: Sequence[str], directory: Path) -> Iterator[dict[str, str]]:
    """`kakeya up` on free ports. Yields where it serves `grpc` and `http`, each as HOST:PORT. Raises StackFailed."""
    command = [*kakeya, "up", "--bind=127.0.0.1:0", "--http-bind=127.0.0.1:0", f"--data-dir={directory / 'data'}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAKEYA_")}
    with (
        (directory / "errors").open("w+b") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, cwd=directory, env=environment) as process,
    ):
        try:
            ready = next((line for line in map(bytes.decode, process.stdout or ()) if line.startswith(_STARTED)), "")
            if not ready:
                raise StackFailed(f"kakeya up: {(directory / 'errors').read_text()}")
            yield dict(place.split("=") for place in ready.split()[1:])
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()  # or all wait for it
                raise


def chat_over_http(address: str) -> str:
    """The answer."""
    asked = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 32}
    request = urllib.request.Request(
        f"http://{address}/v1/chat/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310  # http, as is said above
        return str(json.load(answer)["choices"][0]["message"]["content"])


def chat_over_sdk(address: str) -> str:
    """The answer."""
    import kakeya  # what is installed, if it is
    from kakeya.text.chat_tokenizer import ChatTokenizer
    from kakeya_shared import installed_models

    tokenizer = ChatTokenizer(str(installed_models.directory(MODEL)))
    prompt = tokenizer.prompt([{"role": "user", "content": QUESTION}])
    with kakeya.Client(address) as client, client.create_session(eos_token_ids=tokenizer.eos_token_ids) as session:
        tokens = session.turn(prompt, max_tokens=32).all()
    return tokenizer.decode(tokens)


def examined(kakeya: Sequence[str], address: str) -> list[str]:
    """What `kakeya doctor` finds wrong."""
    command = [*kakeya, "doctor", "--json", "--address", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    wrong = [f"{each['subject']}: {each['detail']}" for each in found if each["condition"] == "wrong"]
    return wrong or ([done.stderr] if done.returncode else [])


def main() -> int:
    """Returns the exit status."""
    kakeya = sys.argv[1:] or [str(Path(sys.executable).parent / "kakeya")]
    with tempfile.TemporaryDirectory(prefix="kakeya-stack-") as directory, up(kakeya, Path(directory)) as places:
        answers = {"HTTP": chat_over_http(places["http"]), "SDK": chat_over_sdk(places["grpc"])}
        if wrong := [f"{way} says {answer!r}" for way, answer in answers.items() if "5" not in answer]:
            raise StackFailed("; ".join(wrong))
        if wrong := examined(kakeya, places["grpc"]):
            raise StackFailed("; ".join(wrong))
    print(f"a whole stack answers over HTTP and over the SDK: {answers['SDK']!r}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StackFailed as error:
        sys.exit(str(error))
