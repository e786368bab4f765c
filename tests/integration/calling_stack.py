"""kakeya-nano with tools, which it has not learned to use: a template that writes them, a shim for each family."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_http_shim.tools.families import SYNTAXES
from kakeya_shared import installed_models
from tests.integration.open_http import MODEL
from tests.integration.processes import Runtime, runtime

NUM_LANES = 8
WINDOW = 768
_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t.function.name }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@contextmanager
def calling_stack(directory: Path) -> Iterator[Runtime]:
    """One worker in exact mode."""
    model = directory / MODEL
    shutil.copytree(installed_models.directory(MODEL), model)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": _TEMPLATE}))
    with runtime(model, directory, num_workers=0) as stack:
        stack.start_worker("--weights=int8", f"--window={WINDOW}", lanes=NUM_LANES)
        stack.wait_for_workers(1)
        for family in sorted(SYNTAXES):
            # Requests are single ones here.
            flags = (f"--tool-parser={MODEL}={family}", f"--tokenizer={MODEL}={model}", "--live-sessions=off")
            stack.start_http(*flags)
        yield stack


def base_url(stack: Runtime, family: str) -> str:
    """Of the shim that reads the calls of a family."""
    return f"http://{stack.shims[sorted(SYNTAXES).index(family)].address}/v1"
