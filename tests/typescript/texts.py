"""What the Python SDK makes of texts and conversations: what the TypeScript SDK has to come to as well.

    python -m tests.typescript.texts DIRECTORY [--number N] [--slice] [--smollm2 TOKENIZER_JSON]

Writes tokenizers and templates into the directory, and `cases.json` with all that is asked and answered.
"""

import argparse
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import kakeya_nano
from kakeya.text.chat_template import ChatTemplate
from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya.text.detokenizer import Detokenizer
from kakeya.text.tokenizer_error import TokenizerError
from tests.unit.sdk import families, model_tokenizers
from tests.unit.sdk.text.test_families import PLAIN, SAID, TOOLS, conversations
from tests.unit.sdk.text.test_marked_text import EXPRESSIONS, PIECES, expression_template

NANO = Path(kakeya_nano.__file__).parent / "kakeya-nano"
BUILT = ("qwen", "llama3", "smollm", "mistral", "llama2", "gemma")
"""The kinds of `model_tokenizers` that are read there; `unigram` is refused."""
SLICE = ("smollm", "mistral", "llama2")
TOLD: tuple[dict[str, Any], ...] = (
    {},
    {"variables": {"enable_thinking": False}},
    {"tools": TOOLS},
    {"tools": TOOLS, "variables": {"date_string": "today"}},
)
NUMBERS = '{"city": "Zürich", "days": [1.0, -0, 1e5, 1e-7, 123456789012345678901, 1.5e300], "<|im_end|>": null}'
NUM_DECODED = 1000
ENDS = ("answer", "message", "text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--number", type=int, default=5_000, help="of texts")
    parser.add_argument("--slice", action="store_true", help="few tokenizers, and every seventh conversation")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2's tokenizer.json")
    flags = parser.parse_args()
    random = Random(7)
    texts = model_tokenizers.texts(flags.number)
    tokenizers = {name: _tokenizer(ChatTokenizer(str(path)), texts, random) for name, path in _directories(flags)}
    templates = dict(_templates(flags.directory, 7 if flags.slice else 1))
    expressions = _expressions(random, 4 if flags.slice else 40)
    cases = {"now": time.time(), "tokenizers": tokenizers, "templates": templates, "expressions": expressions}
    (flags.directory / "cases.json").write_text(json.dumps(cases))


def _directories(flags: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    yield "nano", NANO
    for name in SLICE if flags.slice else BUILT:
        model_tokenizers.BUILDERS[name](flags.directory / name)
        yield name, _with_template(flags.directory / name)
    model_tokenizers.BUILDERS["unigram"](flags.directory / "unigram")
    if flags.smollm2:
        directory = flags.directory / "smollm2"
        directory.mkdir()
        shutil.copy(flags.smollm2, directory / "tokenizer.json")
        yield "smollm2", _with_template(directory)


def _with_template(directory: Path) -> Path:
    """Writes each message between two control tokens of the tokenizer."""
    (directory / "chat_template.jinja").write_text("")
    control = list(ChatTokenizer(str(directory))._tokenizer.control.contents.values())
    source = "{% for m in messages %}" + control[-1] + "{{ m.content }}" + control[-2] + "{% endfor %}"
    (directory / "chat_template.jinja").write_text(source)
    return directory


def _tokenizer(tokenizer: ChatTokenizer, texts: list[str], random: Random) -> dict[str, Any]:
    """Ids of texts, of which every fourth has control tokens in it; and what is decoded of them."""
    control = list(tokenizer._tokenizer.control.contents.values())
    texts = [_with_control(text, control, random) if index % 4 == 0 else text for index, text in enumerate(texts)]
    ids = [tokenizer.encode(text) for text in texts]
    cut = [each[len(each) // 3 : -1] for each in ids[:NUM_DECODED]]
    return {
        "directory": tokenizer.name,
        "texts": texts,
        "eos_token_ids": tokenizer.eos_token_ids,
        "num_token_ids": tokenizer.num_token_ids,
        "ids": ids,
        "bare_ids": [tokenizer.encode(text, special_tokens=False) for text in texts],
        "as_text": [tokenizer.encode(text, parses=False) for text in texts],
        "prompts": [tokenizer.prompt([{"role": "user", "content": text}]) for text in texts],
        "decoded": [tokenizer.decode(each, special_tokens=True) for each in ids[:NUM_DECODED]],
        "cut": [tokenizer.decode(each) for each in cut],
        "pieces": [_pieces(tokenizer, each) for each in cut[: NUM_DECODED // 5]],
    }


def _with_control(text: str, control: list[str], random: Random) -> str:
    for _ in range(random.randint(1, 3)):
        place = random.randint(0, len(text))
        text = text[:place] + random.choice(control) + text[place:]
    return text


def _pieces(tokenizer: ChatTokenizer, ids: list[int]) -> list[str]:
    """As they are streamed."""
    detokenizer = Detokenizer(tokenizer.decode)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


def _templates(directory: Path, every: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, source in families.ONES.items():
        folder = directory / f"template-{name}"
        families.save(folder, source)
        yield name, _template(folder, every)
    folder = directory / "template-named"
    families.save(folder)
    named = [{"name": name, "template": source} for name, source in families.NAMED.items()]
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}))
    yield "named", _template(folder, every)
    yield "nano", _template(NANO, every)


def _template(directory: Path, every: int) -> dict[str, Any]:
    tokenizer = ChatTokenizer(str(directory))
    talks = [talk for said in (PLAIN, SAID) for talk in [*conversations(said).values(), _numbers(said[0])]]
    wanted = [(talk, {**told, "end": end}) for talk in talks for told in TOLD for end in ENDS]
    cases = [_case(tokenizer, talk, told) for talk, told in wanted[::every]]
    goes_on = [_next(tokenizer, text, last) for text in SAID for last in (None, *tokenizer.eos_token_ids)]
    return {"directory": str(directory), "cases": cases, "goes_on": goes_on}


def _numbers(first: str) -> list[dict[str, Any]]:
    """A call as OpenAI's API has it, with numbers that not every library writes in one way."""
    call = {"id": "call_0123456789", "type": "function", "function": {"name": "weather", "arguments": NUMBERS}}
    return [{"role": "user", "content": first}, {"role": "assistant", "content": None, "tool_calls": [call]}]


def _case(tokenizer: ChatTokenizer, messages: Sequence[Mapping[str, Any]], told: dict[str, Any]) -> dict[str, Any]:
    case = {"messages": messages, "told": told}
    try:
        return case | {"rendered": tokenizer.render(messages, **told), "ids": tokenizer.prompt(messages, **told)}
    except TokenizerError as error:
        return case | {"error": type(error).__name__}


def _next(tokenizer: ChatTokenizer, text: str, last_token_id: int | None) -> dict[str, Any]:
    case = {"text": text, "last_token_id": last_token_id}
    try:
        first, following = tokenizer.first_prompt(text, None), tokenizer.next_prompt(text, last_token_id)
        return case | {"first": first, "next": following}
    except TokenizerError as error:
        return case | {"error": type(error).__name__}


def _expressions(random: Random, number: int) -> list[dict[str, Any]]:
    """What methods, filters and operators make of pairs of texts; None where they fail."""
    pairs = [["", "<"], ["imim", "<|im_end|>"], ["<think> \n", "<think>"]]
    pairs += [["".join(random.choices(PIECES, k=random.randint(0, 8))) for _ in range(2)] for _ in range(number)]
    found = []
    for expression in EXPRESSIONS:
        source = expression_template(expression)
        template = ChatTemplate(source, "it", {})
        made = [_written(template, [{"role": "user", "content": text} for text in pair]) for pair in pairs]
        found.append({"expression": expression, "source": source, "pairs": pairs, "made": made})
    return found


def _written(template: ChatTemplate, messages: list[dict[str, str]]) -> str | None:
    try:
        return template.render(messages)
    except TokenizerError:
        return None


if __name__ == "__main__":
    main()
