"""What the demo prints: a live table in a terminal, lines now and then elsewhere, transcripts and the summary."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from kakeya.text.chat_tokenizer import ChatTokenizer
from kakeya_local import demo_command
from kakeya_local.demo.demo import DemoOptions, check_pins, chosen_scripts, model_file, num_pinned_tokens
from kakeya_local.demo.report import DemoReport, Opened, Reading
from kakeya_local.demo.scripts import NUM_TURNS, SCRIPTS, UNKNOWN
from kakeya_local.demo.summary import summarize
from kakeya_local.demo.table import turn_table
from kakeya_local.demo.transcript import print_transcripts
from kakeya_local.demo.turn import Turn
from kakeya_local.errors import StackError
from kakeya_shared import installed_models
from tests.unit.sdk import tiny_tokenizer

TURNS = [
    Turn(1, 1, 50, 50, 10, 0.1, 0.2, 500, user="Hello!", answer="Hi!\nHow are you?"),
    Turn(1, 2, 100, 50, 10, 0.1, 0.2, 680, user="Who am I?", answer="[Bo]", expected="Bo", forgotten_tokens=32),
    Turn(1, 3, 150, 50, 10, 0.1, 0.2, 680, user="Again?", answer="Al", expected="Bo", forgotten_tokens=82),
]
SESSION = Opened(1, "a talk", "Be brief.\nBe kind.", sink=24, window=44, pinned_tokens=24)


def console(output: io.StringIO, *, is_terminal: bool = False) -> Console:
    return Console(file=output, force_terminal=is_terminal, width=120)


def test_a_terminal_shows_each_turn_and_is_cleared() -> None:
    output, reports = io.StringIO(), list[str]()
    with turn_table(console(output, is_terminal=True), reports.append, 3) as table:
        for turn in TURNS:
            table.add(turn)
    shown = output.getvalue()
    for expected in ("conversation", "kv_live_bytes", "+50", "100.0", "200.0", "680"):
        assert expected in shown
    assert shown.endswith("\x1b[2K"), "the last thing is a line that is erased"
    assert reports == []


def test_over_http_the_servers_seconds_are_not_known() -> None:
    output = io.StringIO()
    with turn_table(console(output, is_terminal=True), list[str]().append, 3) as table:
        table.add(replace(TURNS[0], prefill_seconds=None, decode_seconds=None))
    assert "+50           -          -            500" in output.getvalue()


def test_elsewhere_it_says_now_and_then_how_far_it_is() -> None:
    output, reports = io.StringIO(), list[str]()
    with turn_table(console(output), reports.append, 21) as table:
        for number in range(1, 22):
            for conversation in (1, 2):
                table.add(replace(TURNS[0], conversation=conversation, turn=number))
    assert reports == [f"the conversations are at turn {number} of 21" for number in (1, 11, 21)]
    assert output.getvalue() == ""


def report(*, wrong_bytes: int = 0) -> DemoReport:
    """Two conversations alike."""
    readings = [Reading(1, turn.turn, "info", turn.history_length, turn.kv_live_bytes) for turn in TURNS]
    readings[2] = Reading(1, 3, "info", 150, 680 + wrong_bytes)
    turns = [replace(turn, conversation=number) for turn in TURNS for number in (1, 2)]
    sessions = [SESSION, replace(SESSION, conversation=2, title="another", pinned_tokens=0)]
    return DemoReport("tiny", 4, 64, 10, sessions, turns, readings)


def test_transcripts_show_the_first_conversation_whole_and_of_others_what_was_expected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_transcripts(report())
    first, second = capsys.readouterr().out.split("conversation 2, another: ")
    assert "conversation 1, a talk: sink 24, window 44, the system prompt's 24 tokens pinned\n" in first
    assert "system prompt: Be brief. / Be kind.\n" in first
    rows = [" ".join(line.split()) for line in first.splitlines()[4:] if line]
    assert rows == [
        "1 50 50 100+200 500 Hello! -> Hi! / How are you?",
        "2 100 68 100+200 680 Who am I? -> [Bo]",
        "3 150 68 100+200 680 Again? -> Al [expected: Bo]",
    ]
    assert second.startswith("sink 24, window 44\n")
    assert [line.split()[0] for line in second.splitlines()[3:]] == ["2", "3"]


def test_of_others_of_which_nothing_was_expected_the_last_turns_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    made.turns = [replace(TURNS[0], conversation=number, turn=turn) for turn in range(1, 10) for number in (1, 2)]
    print_transcripts(made)
    second = capsys.readouterr().out.partition("conversation 2, another: ")[2]
    assert [line.split()[0] for line in second.splitlines()[3:]] == ["3", "4", "5", "6", "7", "8", "9"]


def test_what_is_still_in_sight_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    made.turns[2] = replace(made.turns[2], still_in_sight=True)
    print_transcripts(made)
    assert "-> [Bo] [still in sight]\n" in capsys.readouterr().out


def test_a_long_answer_is_cut_on_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    made = report()
    made.turns[0] = replace(made.turns[0], answer="x" * 1000)
    print_transcripts(made)
    assert f" {'x' * 200}...\n" in capsys.readouterr().out


@pytest.mark.parametrize(("wrong_bytes", "verdict"), [(0, "exact in all 3 readings"), (1, "wrong in 1 of 3 readings")])
def test_summary_says_growth_plateau_and_truth(wrong_bytes: int, verdict: str) -> None:
    output = io.StringIO()
    summarize(report(wrong_bytes=wrong_bytes), console(output))
    shown = output.getvalue()
    assert (
        "conversation 1 (a talk): history grew to 150 tokens in 3 turns, kv_live_bytes stayed at 680 from turn 2 on; "
        "82 tokens are forgotten, the first 24, which are pinned, never will be\n"
    ) in shown
    assert "82 tokens are forgotten, none is pinned\n" in shown
    assert "min(history, 4 + 64) x 10 bytes a token by config.json, at most 680" in shown
    assert verdict in shown
    assert (
        "answers: 2 of 4 as expected, all but conversation 1 turn 3 ('Again?'), conversation 2 turn 3 ('Again?')\n"
    ) in shown
    assert "recalled" not in shown
    assert "2.50 ms an appended token, 20.00 ms a generated one" in shown


def test_summary_claims_recall_only_where_all_of_it_was_seen() -> None:
    made, output = report(), io.StringIO()
    made.turns = [turn for turn in made.turns if turn.as_expected]
    summarize(made, console(output))
    assert "answers: 2 of 2 as expected: what is in sight is recalled, " in output.getvalue()
    made.turns = [replace(turn, expected="") for turn in made.turns]
    summarize(made, console(output))
    assert "answers: nothing was expected of them\n" in output.getvalue()
    assert output.getvalue().count("recalled") == 1


def test_summary_of_conversations_that_were_short() -> None:
    made, output = report(), io.StringIO()
    made.turns = made.turns[:2]
    summarize(made, console(output))
    assert "stayed at 500 from turn 1 on; nothing was forgotten" in output.getvalue()


def test_scripts_are_equally_long_and_expect_something_of_memory_and_of_its_end() -> None:
    for script in SCRIPTS:
        assert len(script.lines) == NUM_TURNS
        expected = [line.expects for line in script.lines if line.expects]
        assert UNKNOWN in expected
        assert len(expected) >= 9


def test_what_should_be_forgotten_was_told_in_words_that_are_found() -> None:
    for script in SCRIPTS:
        for number, line in enumerate(script.lines):
            assert bool(line.forgotten) == (line.expects == UNKNOWN)
            if line.forgotten:
                assert any(line.forgotten in told.text for told in script.lines[: number - 10])


def test_expectations_are_dropped_where_the_scripts_were_not_written_for_it() -> None:
    assert chosen_scripts(2, with_expectations=True) == list(SCRIPTS[:2])
    others = chosen_scripts(4, with_expectations=False)
    assert not any(line.expects or line.forgotten for script in others for line in script.lines)
    assert others[2].tools
    assert [line.is_result for line in others[2].lines] == [line.is_result for line in SCRIPTS[2].lines]
    assert [line.text for line in others[3].lines] == [line.text for line in SCRIPTS[0].lines]


@pytest.mark.parametrize(
    ("flags", "has_defaults"),
    [
        ([], True),
        (["--model", "mine", "--workers", "1", "--conversations", "1"], True),
        (["--conversations", "4"], False),
        (["--window", "237"], False),
        (["--sink", "0"], False),
        (["--turns", "33"], False),
    ],
)
def test_scripts_run_as_written_in_their_own_sizes(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], has_defaults: bool
) -> None:
    async def demo(options: DemoOptions) -> int:
        assert options.model == ("mine" if "mine" in flags else None)
        return int(options.has_defaults)

    monkeypatch.setattr("kakeya_local.demo.demo.demo", demo)
    assert bool(demo_command.main(flags)) == has_defaults


def test_a_system_prompt_that_fills_the_lane_is_refused_before_anything_starts() -> None:
    tokenizer = ChatTokenizer(str(installed_models.directory("kakeya-nano")))
    pins = [num_pinned_tokens(script, tokenizer) for script in SCRIPTS]
    assert pins[2] == max(pins) > 100, "tools are pinned, too"
    check_pins(SCRIPTS, tokenizer, pins[2] + 1)
    with pytest.raises(StackError, match=f"prompt of conversation 3 has {pins[2]} tokens, .* choose a larger --window"):
        check_pins(SCRIPTS, tokenizer, pins[2])


def test_tools_that_a_model_is_not_told_of_fill_no_lane(tmp_path: Path) -> None:
    tiny_tokenizer.save(tmp_path, template=True, markers=False)
    check_pins(SCRIPTS[2:], ChatTokenizer(str(tmp_path)), 1)


def test_a_model_directory_must_hold_its_files(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=f"the model directory {tmp_path} holds no tokenizer.json"):
        model_file(str(tmp_path), "tokenizer.json")
    (tmp_path / "tokenizer.json").touch()
    assert model_file(str(tmp_path), "tokenizer.json") == tmp_path / "tokenizer.json"


def test_a_hub_that_does_not_answer_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StackError, match=r"cannot get config\.json of nobody/nothing: "):
        model_file("nobody/nothing", "config.json")


@pytest.mark.parametrize("flags", [["--turns", "0"], ["--sink", "-1"], ["--window", "x"]])
def test_senseless_sizes_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        demo_command.main(flags)
    assert refused.value.code == 2
    assert f"error: {flags[0]} (KAKEYA_DEMO_" in capsys.readouterr().err
