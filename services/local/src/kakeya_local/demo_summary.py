"""What the demo says at its end."""

from rich.console import Console
from tokenizers import Tokenizer

from kakeya_local.conversation import Conversation
from kakeya_local.demo_report import NUM_COMPARED_TURNS, DemoReport, Pace

_SAMPLE_CHARACTERS = 160


def summarize(report: DemoReport, conversations: list[Conversation], tokenizer: Tokenizer, console: Console) -> None:
    """Prints growth, bytes against the formula, first turns against last ones, and what the model said."""
    lines = [""]
    for conversation, last in zip(conversations, report.last_turns(), strict=True):
        lines.append(
            f"conversation {last.conversation} ({conversation.title}): history grew to {last.history_length} tokens "
            f"in {last.turn} turns, kv_live_bytes {_plateau(report, last.conversation)}"
        )
    lines += [
        "",
        _formula(report),
        _pace(report),
        "",
        "what the model said (the demo checkpoint's weights are random):",
    ]
    lines += [f"  {conversation.title}: {_sample(conversation, tokenizer)}" for conversation in conversations]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _plateau(report: DemoReport, conversation: int) -> str:
    turns = [turn for turn in report.turns if turn.conversation == conversation]
    level = turns[-1].kv_live_bytes
    start = next(turn.turn for turn in reversed(turns) if turn.turn == 1 or turns[turn.turn - 2].kv_live_bytes != level)
    return f"stayed at {level:,} from turn {start} on"


def _formula(report: DemoReport) -> str:
    num_readings, num_wrong = len(report.readings), len(report.wrong_bytes())
    outcome = f"wrong in {num_wrong} of {num_readings}" if num_wrong else f"exact in all {num_readings}"
    return (
        f"kv_live_bytes = min(history, {report.sink} + {report.window}) x {report.kv_bytes_per_token:,} bytes a token "
        f"by config.json, at most {report.expected_bytes(report.sink + report.window):,}: "
        f"{outcome} readings (append, generate and info of every turn)"
    )


def _pace(report: DemoReport) -> str:
    first, last = report.first_and_last()
    return f"first {NUM_COMPARED_TURNS} turns: {_milliseconds(first)}; last {NUM_COMPARED_TURNS}: {_milliseconds(last)}"


def _milliseconds(pace: Pace) -> str:
    return f"{pace.prefill_seconds * 1e3:.2f} ms an appended token, {pace.decode_seconds * 1e3:.2f} ms a generated one"


def _sample(conversation: Conversation, tokenizer: Tokenizer) -> str:
    text: str = tokenizer.decode(conversation.generated)
    return repr(text[:_SAMPLE_CHARACTERS])
