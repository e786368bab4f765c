"""What the quality bench feeds: facts, fillers, dialogues at given distances, and the chat template's tokens."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kakeya_bench.quality.material import dialogue, facts, fillers
from kakeya_bench.quality.material.chat_template import ChatTemplate
from kakeya_bench.quality.material.dialogue import Dialogue, Transcript
from kakeya_bench.quality.material.facts import Exchange
from kakeya_bench.quality.material.script import Outcome
from kakeya_bench.quality.plan import ANSWER_TOKENS
from kakeya_bench.quality.settings import CannotMeasure
from tests.unit.bench.quality.quality_checkpoint import CHATML, save_tokenizer


def test_a_value_stands_in_a_text_as_words_of_its_own() -> None:
    assert facts.stands_in("Rex", "Your dog's name is REX.")
    assert facts.stands_in("tiger-maple", "It is tiger-maple.")
    assert not facts.stands_in("Rex", "T-Rexes")
    assert not facts.stands_in("42", "The code is 1421.")


def test_facts_of_a_dialogue_share_neither_key_nor_value() -> None:
    for seed in range(100):
        random, known = Random(seed), list[facts.Fact]()
        for _ in range(12):
            known.append(facts.draw(random, known))
        assert len({fact.key for fact in known}) == 12
        for fact in known:
            for telling in (fact.told, fact.noted, fact.asking(random).answer):
                assert facts.stands_in(fact.value, telling)
            others = [each for other in known if other is not fact for each in (other.told, other.noted, *other.asked)]
            assert not facts.stands_in(fact.value, " ".join((*others, *fact.asked, fact.telling.answer)))


def test_a_guess_is_rarely_right() -> None:
    values = {fact.key: set[str]() for fact in (facts.draw(Random(seed)) for seed in range(200))}
    for seed in range(6000):
        fact = facts.draw(Random(seed))
        values[fact.key].add(fact.value)
    assert min(map(len, values.values())) >= 25


def test_no_filler_holds_a_forbidden_value() -> None:
    random, forbidden = Random(1), ("Paris", "key", "7", "fox")
    anything = " ".join(" ".join(fillers.draw(random, ())) for _ in range(2000))
    said = " ".join(" ".join(fillers.draw(random, forbidden)) for _ in range(2000))
    assert [facts.stands_in(value, anything) for value in forbidden] == [True] * 4
    assert [facts.stands_in(value, said) for value in forbidden] == [False] * 4


def test_sums_are_right() -> None:
    random = Random(2)
    drawn = [fillers.draw(random, ()).answer for _ in range(500)]
    sums = [answer.rstrip(".").split(" = ") for answer in drawn if " = " in answer]
    assert len(sums) > 100
    for problem, result in sums:
        left, operator, right = problem.split()
        expected = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
        assert int(result) == expected


def test_a_transcript_is_what_the_template_renders_as_a_whole(template: ChatTemplate, directory: Path) -> None:
    from transformers import AutoTokenizer

    said = [Exchange("Hello!", "Hi!"), Exchange("My dog is called Rex.", "OK."), Exchange("1 + 1?", "1 + 1 = 2.")]
    transcript = Transcript(template, Random(0), system="Be brief.")
    for exchange in said:
        transcript.say(exchange)
    tokens = [*transcript.tokens, *transcript.question("And now?")]
    messages = [{"role": "system", "content": "Be brief."}]
    for exchange in said:
        messages += [{"role": "user", "content": exchange.question}, {"role": "assistant", "content": exchange.answer}]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rendered = tokenizer.apply_chat_template(
        [*messages, {"role": "user", "content": "And now?"}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(tokens) == rendered
    assert tokens == tokenizer.encode(rendered, add_special_tokens=False)
    answers = [token for token, is_answer in zip(transcript.tokens, transcript.is_answer, strict=True) if is_answer]
    assert tokenizer.decode(answers) == "Hi!<|im_end|>OK.<|im_end|>1 + 1 = 2.<|im_end|>"
    head = tokenizer.decode(transcript.tokens[: transcript.num_system_tokens])
    assert head == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"


def test_answers_end_as_the_checkpoint_says_too(directory: Path, tmp_path: Path) -> None:
    save_tokenizer(tmp_path, CHATML)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    assert ChatTemplate(str(tmp_path)).eos_token_ids == ChatTemplate(str(directory)).eos_token_ids | {5, 6}
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(CannotMeasure, match="generation_config"):
        ChatTemplate(str(tmp_path))


def test_without_a_template_messages_are_lines(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, None)
    template = ChatTemplate(str(tmp_path))
    assert template.is_plain
    assert template.end_of_answer == ()
    transcript = Transcript(template, Random(0), system="Be brief.")
    transcript.say(Exchange("Hello!", "Hi!"))
    transcript.say(Exchange("What is 1 + 1?", "2"))
    assert template.decode(tuple(transcript.tokens)) == "Be brief.\nHello!\nHi!\nWhat is 1 + 1?\n2"


@pytest.mark.parametrize(
    "refusing",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML,
        CHATML.replace("in messages", "in messages if message['role'] != 'system'"),
    ],
)
def test_a_template_may_refuse_system_messages_or_leave_them_out(
    tmp_path: Path, template: ChatTemplate, refusing: str
) -> None:
    save_tokenizer(tmp_path, refusing)
    assert not ChatTemplate(str(tmp_path)).takes_system
    assert template.takes_system


@pytest.mark.parametrize("losing", ["{{ messages | length }}", "{{ messages[-1]['content'] }}"])
def test_a_template_that_loses_what_is_said_is_not_measured(tmp_path: Path, losing: str) -> None:
    save_tokenizer(tmp_path, losing)
    with pytest.raises(CannotMeasure, match="chat template"):
        ChatTemplate(str(tmp_path))


def outcomes(written: Dialogue, template: ChatTemplate) -> list[Outcome]:
    """Of a model that says nothing."""
    logits, script = np.eye(1, 2048, min(template.eos_token_ids), dtype=np.float32)[0], written.script(template, 10_000)
    try:
        next(script)
        while True:
            script.send(logits)
    except StopIteration as end:
        found: list[Outcome] = end.value
        return found


@pytest.mark.parametrize("in_system", [False, True])
def test_questions_stand_where_they_should(template: ChatTemplate, in_system: bool) -> None:
    for seed in range(10):
        written = dialogue.one_fact(template, Random(seed), (1, 64, 100, 200, 400), in_system=in_system)
        assert [question.target for question in written.questions][-3:] == [100, 200, 400]
        history: list[int] = []
        for question, outcome in zip(written.questions, outcomes(written, template), strict=True):
            history += question.before
            asked_at = len(history) + len(question.tokens) - 1
            assert question.target - 30 < outcome.first <= question.target
            assert (asked_at - outcome.first, asked_at - outcome.last + 1) == (question.told_at, question.told_until)
            told = template.decode(tuple(history[question.told_at : question.told_until]))
            assert facts.stands_in(question.value, told), "the telling is where the distances say"
            assert len(question.tokens) + ANSWER_TOKENS <= written.longest_probe
        said = template.decode(tuple(history)).casefold()
        assert said.count(written.questions[0].value.casefold()) == 1, "told once and never repeated"
        head = template.decode(tuple(history[: written.num_system_tokens]))
        assert facts.stands_in(written.questions[0].value, head) is in_system


def test_a_question_that_is_too_near_is_not_asked(template: ChatTemplate) -> None:
    written = dialogue.one_fact(template, Random(0), (1, 2, 3))
    assert (written.questions, written.longest_probe) == ((), ANSWER_TOKENS)


def test_fillers_fill_up_to_a_length_and_not_further(template: ChatTemplate) -> None:
    for seed in range(20):
        transcript = Transcript(template, Random(seed))
        transcript.fill(until=500)
        assert 470 < len(transcript) <= 500


def test_several_facts_are_told_in_the_first_half(template: ChatTemplate) -> None:
    for seed in range(10):
        questions = dialogue.several_facts(template, Random(seed), 700).questions
        history = questions[0].before
        assert len(questions) == dialogue.MOST_FACTS
        assert 670 < len(history) <= 700
        assert not any(question.before for question in questions[1:])
        for question in questions:
            assert question.told_at <= 350
            told = template.decode(history[question.told_at : question.told_until])
            assert facts.stands_in(question.value, told)
            assert told.rstrip().endswith("assistant"), "up to where the answer begins"
        said = template.decode(history).casefold()
        assert all(said.count(question.value.casefold()) == 1 for question in questions)


def test_short_dialogues_have_fewer_facts() -> None:
    assert [dialogue.num_facts(length) for length in (10, 155, 156, 10_000)] == [0, 0, 3, dialogue.MOST_FACTS]


def test_texts_are_dialogues_of_one_length_or_cut_out_of_a_given_one(template: ChatTemplate) -> None:
    own = dialogue.write(template, Random(0), 600)
    assert len(own.tokens) == len(own.is_answer) == 600
    assert 0.2 < sum(own.is_answer) / 600 < 0.7
    assert facts.ACKNOWLEDGED in template.decode(own.tokens)
    tokens = tuple(range(100))
    assert [each.tokens for each in dialogue.cut(tokens, 40, 9)] == [tokens[:40], tokens[40:80]]
    assert [each.tokens for each in dialogue.cut(tokens, 40, 1)] == [tokens[:40]]
    assert [each.tokens for each in dialogue.cut(tokens, 400, 9)] == [tokens]
    assert not any(dialogue.cut(tokens, 40, 1)[0].is_answer)
    with pytest.raises(CannotMeasure, match="has 31 tokens"):
        dialogue.cut(tokens[:31], 40, 1)
