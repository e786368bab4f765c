"""`kakeya chat`: whose tokenizer it takes, what it pins, and that it says what was forgotten."""

import shutil
from importlib.metadata import EntryPoint
from pathlib import Path

import grpc
import pytest

from kakeya import Truncation
from kakeya.cli.flags import installed_models
from kakeya.cli.output.sight import Forgetting, sight
from kakeya.cli.output.terminal import Terminal
from kakeya.text.chat_tokenizer import ChatTokenizer
from tests.unit.sdk import tiny_tokenizer
from tests.unit.sdk.chat_templates import SERVED
from tests.unit.sdk.chatting import Talk, encode, sent
from tests.unit.sdk.scripted_runtime import SINK, VOCAB_SIZE, WINDOW, ScriptedRuntime, fails, fails_plainly, model

MISTRAL = (
    "{{ bos_token or '<s>' }}{% set system = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% for m in messages if m.role != 'system' %}"
    "{% if m.role == 'user' %}[INST] {{ system ~ '\\n\\n' if loop.first and system else '' }}{{ m.content }}[/INST]"
    "{% else %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
"""As Mistral's does: it begins whatever it renders, and the system prompt stands in the user's first message."""


@pytest.fixture
def installed(template_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of installed models, all with the tokenizer of `template_dir`."""
    names: list[str] = []
    (tmp_path / "an_installed_model.py").write_text(f"def directory(): return {str(template_dir)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)

    def entry_points(group: str, name: str) -> list[EntryPoint]:
        assert group == "kakeya.models"
        return [EntryPoint(name, "an_installed_model:directory", group)] if name in names else []

    monkeypatch.setattr(installed_models, "entry_points", entry_points)
    return names


def test_the_tokenizer_is_that_of_the_installed_model_that_is_served(
    untold: Talk,
    runtime: ScriptedRuntime,
    tokenizer: ChatTokenizer,
    installed: list[str],
    template_dir: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed += ["counter", "other"]
    runtime.models = [model("other"), model("counter", is_default=True)]
    runtime.answers.append(encode(tokenizer, "Hello<|im_end|>"))
    assert untold("hi\n") == 0
    assert sent(tokenizer, runtime) == ["<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"]
    assert f"\ntokenizer {template_dir}\n" in capsys.readouterr().err
    assert untold("", "--model", "other") == 0
    assert [request.model for request in runtime.requests["CreateSession"]] == ["counter", "other"], "what was chosen"


def test_a_tokenizer_that_is_named_is_taken_without_asking(
    untold: Talk, runtime: ScriptedRuntime, template_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAKEYA_TOKENIZER", str(template_dir))
    assert untold("") == 0
    assert not runtime.requests["ListModels"]


def test_a_tokenizer_may_be_named_as_its_installed_model(
    untold: Talk,
    runtime: ScriptedRuntime,
    tokenizer: ChatTokenizer,
    installed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed.append("mine")
    (tmp_path / "mine").mkdir()  # holds no tokenizer, and is not in the way
    monkeypatch.chdir(tmp_path)
    assert untold("hi\n", "--tokenizer", "mine", "--max-tokens", "1") == 0
    assert sent(tokenizer, runtime) == ["<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"]


@pytest.mark.parametrize(
    ("models", "flags", "error"),
    [
        (["-a"], [], "no worker serves the router's default model; --model a takes the one that is served\n"),
        ([], [], "which tokenizer? No worker serves a model now: start one, or pass --tokenizer "),
        (["counter"], [], "which tokenizer? The model is 'counter', and none of that name is installed: pass "),
        (
            ["a", "b"],
            [],
            "which model? Several are served and none of them is the default, name one with --model: a, b",
        ),
        (["a", "b"], ["--model", "c"], "no worker serves the model 'c' (served: a, b)\n"),
        (["a", "b"], ["--model", "b"], "which tokenizer? The model is 'b', and none of that name is installed: "),
    ],
)
def test_no_tokenizer_is_to_be_had(
    untold: Talk,
    runtime: ScriptedRuntime,
    capsys: pytest.CaptureFixture[str],
    models: list[str],
    flags: list[str],
    error: str,
) -> None:
    runtime.models = [model(name.strip("-"), is_default=models == ["counter"]) for name in models]
    assert untold("hi\n", *flags) == 1
    assert capsys.readouterr().err.startswith(f"kakeya chat: error: {error}")
    assert not runtime.requests["CreateSession"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("a_missing_module:directory", "ModuleNotFoundError: No module named 'a_missing_module'; pass --tok"),
        ("pathlib:no_directory", "AttributeError: module 'pathlib' has no attribute 'no_directory'; pass --tok"),
        ("os:times_of_day", "AttributeError: "),
        ("os:getpgid", "TypeError: "),
    ],
)
def test_an_installed_model_that_is_broken(
    untold: Talk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], value: str, error: str
) -> None:
    point = EntryPoint("counter", value, "kakeya.models")
    monkeypatch.setattr(installed_models, "entry_points", lambda **_: [point])
    assert untold("hi\n") == 1
    assert f"the installed model 'counter' is broken: {error}" in capsys.readouterr().err


def test_a_router_that_does_not_say_what_it_serves(
    untold: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.before["ListModels"].append(fails_plainly(grpc.StatusCode.UNIMPLEMENTED))
    assert untold("hi\n") == 1
    assert "the router is too old to say what it serves: pass --tokenizer with the model's" in capsys.readouterr().err
    runtime.before["ListModels"].append(fails("UNAUTHENTICATED"))
    assert untold("hi\n") == 1
    assert "scripted UNAUTHENTICATED; set KAKEYA_API_KEY" in capsys.readouterr().err


def test_a_tokenizer_of_a_larger_vocabulary_is_refused(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str], template_dir: Path, tmp_path: Path
) -> None:
    larger = tiny_tokenizer.save_with_words(tmp_path / "larger", VOCAB_SIZE)
    assert talk("hi\n", tokenizer=larger) == 1
    assert capsys.readouterr().err.startswith(
        f"kakeya chat: error: the tokenizer {larger} is another model's ({258 + VOCAB_SIZE:,} ids, and the model knows "
        f"{VOCAB_SIZE:,}); pass --tokenizer "
    )
    assert runtime.sessions == {}
    assert not runtime.requests["AppendTokens"]
    runtime.before["CreateSession"].append(fails("TOKEN_OUT_OF_VOCABULARY"))
    assert talk("hi\n", tokenizer=template_dir) == 1
    assert f"{template_dir} is another model's (scripted TOKEN_OUT_OF_VOCABULARY); pass " in capsys.readouterr().err


def test_the_system_prompt_is_pinned(
    talk: Talk, runtime: ScriptedRuntime, tokenizer: ChatTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert talk("hello\n", "--system", "Be brief", "--max-tokens", "1") == 0
    request = runtime.requests["CreateSession"][0]
    pinned = list(runtime.requests["AppendTokens"][0].token_ids)[: request.pin]
    assert tokenizer.decode(pinned, special_tokens=True) == "<|im_start|>system\nBe brief<|im_end|>\n"
    notes = capsys.readouterr().err
    assert f"; the system prompt is pinned, {request.pin} tokens\n" in notes
    assert f"\nthe pinned system prompt leaves a window of {WINDOW} tokens: nearly everything else" in notes


@pytest.mark.parametrize("flags", [["--system", "Be brief", "--no-pin"], []])
def test_nothing_is_pinned_where_there_is_nothing_or_nobody_wants_it(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert talk("", *flags) == 0
    assert not runtime.requests["CreateSession"][0].HasField("pin")
    assert "pinned" not in capsys.readouterr().err


def test_no_pin_by_variable(talk: Talk, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAKEYA_CHAT_NO_PIN", "1")
    assert talk("", "--system", "Be brief") == 0
    assert not runtime.requests["CreateSession"][0].HasField("pin")


def test_without_a_template_the_system_prompt_is_its_own_line(plain_dir: Path) -> None:
    plain = ChatTokenizer(str(plain_dir))
    assert plain.num_system_tokens("Once upon") == len("Once upon\n")


def _with_template(template_dir: Path, folder: Path, template: str) -> ChatTokenizer:
    shutil.copytree(template_dir, folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(template)
    return ChatTokenizer(str(folder))


def test_a_template_that_renders_no_system_message_alone_still_pins_it(template_dir: Path, tmp_path: Path) -> None:
    refusal = "{% if not messages[1:] and messages[0].role == 'system' %}{{ raise_exception('no user') }}{% endif %}"
    strict = _with_template(template_dir, tmp_path, refusal + tiny_tokenizer.TEMPLATE)
    num_pinned = strict.num_system_tokens("Be brief")
    pinned = strict.first_prompt("hello", "Be brief")[:num_pinned]
    assert strict.decode(pinned, special_tokens=True) == "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\n"


def test_a_template_that_puts_the_system_prompt_into_the_users_message_still_pins_it(
    template_dir: Path, tmp_path: Path
) -> None:
    mistral = _with_template(template_dir, tmp_path, MISTRAL)
    num_pinned = mistral.num_system_tokens(" Be brief ")
    pinned = mistral.first_prompt("hello", " Be brief ")[:num_pinned]
    assert mistral.decode(pinned, special_tokens=True) == "<s>[INST]  Be brief \n\n"


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("[{{ m.content if m.role != 'system' }}", "the chat template leaves out the system prompt"),
        (
            "[{{ messages[-1].content }}{{ m.content }}",
            "the system prompt is not pinned: the chat template does not begin with it",
        ),
    ],
)
def test_a_system_prompt_that_the_template_does_not_begin_with_is_not_pinned(
    talk: Talk,
    runtime: ScriptedRuntime,
    template_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    place: str,
    reason: str,
) -> None:
    directory = tmp_path / "behind"
    shutil.copytree(template_dir, directory)
    (directory / "chat_template.jinja").write_text(f"{{% for m in messages %}}{place}{{% endfor %}}")
    assert talk("", "--system", "Be brief", tokenizer=directory) == 0
    assert not runtime.requests["CreateSession"][0].HasField("pin")
    assert f"; {reason}\n" in capsys.readouterr().err


def test_a_template_that_refuses_system_prompts(
    talk: Talk, template_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "without"
    shutil.copytree(template_dir, directory)
    (directory / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system, please') }}{% endif %}"
        + tiny_tokenizer.TEMPLATE
    )
    refusal = "kakeya chat: error: the chat template refuses messages of system, user: no system, please\n"
    assert talk("hi\n", "--system", "Be brief", tokenizer=directory) == 1
    assert capsys.readouterr().err == refusal
    assert talk("hi\n", "--system", "Be brief", "--no-pin", tokenizer=directory) == 1
    assert capsys.readouterr().err.endswith(refusal)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (SERVED["parts (Llava)"].source, None),
        ("{{ nobody.knows }}", "writes a user's message neither given as a text nor as parts"),
        (
            "{{ nobody.knows if messages | length > 2 }}{{ messages[0].content }}",
            "fails on messages of user, assistant: UndefinedError: 'nobody' is undefined",
        ),
        (SERVED["the last message only"].source, "leaves out what was said before"),
        ("{{ raise_exception('one') if messages | length > 2 }}{{ messages[0].content }}", "user, assistant: one"),
    ],
)
def test_whatever_the_template_does_a_chat_says_it_in_a_line(
    talk: Talk,
    runtime: ScriptedRuntime,
    tokenizer: ChatTokenizer,
    template_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    template: str,
    says: str | None,
) -> None:
    directory = tmp_path / "other"
    shutil.copytree(template_dir, directory)
    (directory / "chat_template.jinja").write_text(template)
    assert talk("hello\nagain\n", "--max-tokens", "1", tokenizer=directory) == (says is not None)
    error = capsys.readouterr().err.splitlines()[-1]
    if says is None:
        assert ["hello" in sent(tokenizer, runtime)[0], "again" in sent(tokenizer, runtime)[1]] == [True, True]
    else:
        assert error.startswith("kakeya chat: error: the chat template ")
        assert says in error


def test_a_system_prompt_too_long_to_be_pinned(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.before["CreateSession"].append(fails("INVALID_FIELD", field="pin"))
    assert talk("hi\n", "--system", "x" * 100) == 1
    error = capsys.readouterr().err
    assert error.startswith("kakeya chat: error: the system prompt has 1")
    assert error.endswith(
        " tokens, too many to be pinned (scripted INVALID_FIELD); shorten it, or let it be forgotten in time: "
        "--no-pin\n"
    )


def test_a_system_prompt_longer_than_every_lane_is_refused_before_the_wait_for_one(
    untold: Talk,
    runtime: ScriptedRuntime,
    tokenizer: ChatTokenizer,
    installed: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    installed.append("counter")
    num_pinned = tokenizer.num_system_tokens("Be brief")
    runtime.models = [model("counter", is_default=True)]
    runtime.models[0].lane_token_count = num_pinned
    assert untold("hi\n", "--system", "Be brief") == 1
    assert capsys.readouterr().err == (
        f"kakeya chat: error: the system prompt has {num_pinned} tokens, too many to be pinned (a lane keeps "
        f"{num_pinned}); shorten it, or let it be forgotten in time: --no-pin\n"
    )
    assert not runtime.requests["CreateSession"]
    runtime.models[0].lane_token_count = num_pinned + 1
    assert untold("", "--system", "Be brief") == 0


def test_other_bad_fields_are_told_as_they_are(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.before["CreateSession"].append(fails("INVALID_FIELD", field="model"))
    assert talk("hi\n", "--system", "x") == 1
    assert capsys.readouterr().err == "kakeya chat: error: scripted INVALID_FIELD\n"


def test_forgetting_is_told_before_the_answer(
    talk: Talk, runtime: ScriptedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Terminal, "note", lambda terminal, text: said.append(text))
    monkeypatch.setattr(Terminal, "write", lambda terminal, text: said.append("answer"))
    assert talk("x" * 100 + "\n", "--max-tokens", "1") == 0
    length = len(runtime.requests["AppendTokens"][0].token_ids)
    notice = (
        f"[forgotten: {length - SINK - WINDOW} of the oldest tokens, to keep within the session's memory; the model "
        f"still sees the first {SINK} tokens and the last {WINDOW} tokens of {length}]"
    )
    assert said.index(notice) < said.index("answer")


def test_forgetting_is_told_again_a_window_later() -> None:
    forgetting = Forgetting(window=16, num_pinned=4)

    def notice(num_forgotten: int) -> str | None:
        length = num_forgotten + 20
        return forgetting.notice(Truncation(num_forgotten, (range(4), range(length - 16, length))))

    assert forgetting.notice(None) is None
    assert notice(3) == (
        "[forgotten: 3 of the oldest tokens, to keep within the session's memory; the model still sees the pinned "
        "system prompt (the first 4 tokens) and the last 16 tokens of 23]"
    )
    assert [notice(number) is not None for number in (4, 18, 19, 34, 35)] == [False, False, True, False, True]


def test_what_an_older_router_does_not_say_is_not_made_up(
    talk: Talk, runtime: ScriptedRuntime, capsys: pytest.CaptureFixture[str]
) -> None:
    runtime.is_old = True
    assert talk("hi\n/info\n") == 0
    assert "num_forgotten_tokens  not said\n" in capsys.readouterr().err
    assert sight((), 23) == "what it sees is not said"
    notice = Forgetting(window=16, num_pinned=0).notice(Truncation(3, ()))
    assert notice is not None
    assert notice.endswith("; what the model still sees is not said]")
