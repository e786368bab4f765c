"""What the quality bench feeds: facts, fillers, dialogues at given distances, and the chat template's tokens."""

import json
from pathlib import Path
from random import Random

import pytest

from kakeya_worker.quality import facts, fillers, multi_turn, perplexity, recall
from kakeya_worker.quality.chat_template import ChatTemplate
from kakeya_worker.quality.distances import default_distances
from kakeya_worker.quality.exchange import Exchange
from kakeya_worker.quality.failure import CannotMeasure
from kakeya_worker.quality.script import ANSWER_TOKENS
from kakeya_worker.quality.transcript import Transcript
from tests.unit.worker.quality_checkpoint import CHATML, save_tokenizer


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    save_tokenizer(path, CHATML)
    return path


@pytest.fixture(scope="module")
def template(directory: Path) -> ChatTemplate:
    return ChatTemplate(directory)


def test_a_value_stands_in_a_text_as_words_of_its_own() -> None:
    assert facts.stands_in("Rex", "Your dog's name is REX.")
    assert facts.stands_in("tiger-maple", "It is tiger-maple.")
    assert not facts.stands_in("Rex", "T-Rexes")
    assert not facts.stands_in("42", "The code is 1421.")


def test_facts_of_a_dialogue_share_neither_key_nor_value() -> None:
    for seed in range(50):
        random, known = Random(seed), list[facts.Fact]()
        for _ in range(12):
            known.append(facts.draw(random, known))
        assert len({fact.key for fact in known}) == len({fact.value for fact in known}) == 12
        for fact in known:
            assert facts.stands_in(fact.value, fact.told)
            assert facts.stands_in(fact.value, fact.noted)
            assert facts.stands_in(fact.value, fact.asking(random).answer)
            assert not any(facts.stands_in(fact.value, question) for question in fact.asked)
            assert not facts.stands_in(fact.value, fact.telling.answer)


def test_a_guess_is_rarely_right() -> None:
    values = {fact.key: set[str]() for fact in (facts.draw(Random(seed)) for seed in range(200))}
    for seed in range(6000):
        fact = facts.draw(Random(seed))
        values[fact.key].add(fact.value)
    assert min(map(len, values.values())) >= 25


def test_no_filler_holds_a_forbidden_value() -> None:
    random = Random(1)
    said = " ".join(f"{each.question} {each.answer}" for each in (fillers.draw(random, ()) for _ in range(2000)))
    forbidden = ("Paris", "key", "7", "fox")
    assert all(facts.stands_in(value, said) for value in forbidden)
    for _ in range(2000):
        exchange = fillers.draw(random, forbidden)
        assert not any(facts.stands_in(value, " ".join(exchange)) for value in forbidden)


def test_sums_are_right() -> None:
    random = Random(2)
    drawn = [fillers.draw(random, ()) for _ in range(500)]
    sums = [each.answer.rstrip(".").split(" = ") for each in drawn if " = " in each.answer]
    assert len(sums) > 100
    for problem, result in sums:
        left, operator, right = problem.split()
        expected = {"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[operator]
        assert int(result) == expected


def test_a_transcript_is_what_the_template_renders_as_a_whole(template: ChatTemplate, directory: Path) -> None:
    from transformers import AutoTokenizer

    said = [
        Exchange("Hello!", "Hi!"),
        Exchange("My dog is called Rex.", "OK."),
        Exchange("What is 1 + 1?", "1 + 1 = 2."),
    ]
    transcript = Transcript(template, Random(0), system="Be brief.")
    for exchange in said:
        transcript.say(exchange)
    transcript._add(transcript.question("And now?"), is_answer=False)
    messages = [{"role": "system", "content": "Be brief."}]
    for exchange in said:
        messages += [{"role": "user", "content": exchange.question}, {"role": "assistant", "content": exchange.answer}]
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rendered = tokenizer.apply_chat_template(
        [*messages, {"role": "user", "content": "And now?"}], tokenize=False, add_generation_prompt=True
    )
    assert tokenizer.decode(transcript.tokens) == rendered
    assert transcript.tokens == tokenizer.encode(rendered, add_special_tokens=False)
    answers = [token for token, is_answer in zip(transcript.tokens, transcript.is_answer, strict=True) if is_answer]
    assert tokenizer.decode(answers) == "Hi!<|im_end|>OK.<|im_end|>1 + 1 = 2.<|im_end|>"
    head = tokenizer.decode(transcript.tokens[: transcript.num_system_tokens])
    assert head == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"


def test_answers_end_as_the_checkpoint_says(directory: Path, tmp_path: Path) -> None:
    save_tokenizer(tmp_path, CHATML)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    own = ChatTemplate(directory).eos_token_ids
    assert ChatTemplate(tmp_path).eos_token_ids == own | {5, 6}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 7}))
    assert ChatTemplate(tmp_path).eos_token_ids == own | {7}
    (tmp_path / "generation_config.json").write_text("{}")
    assert ChatTemplate(tmp_path).eos_token_ids == own
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "text_config": {"eos_token_id": [8, 9]}}))
    assert ChatTemplate(tmp_path).eos_token_ids == own | {8, 9}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": 4}))
    assert ChatTemplate(tmp_path).eos_token_ids == own | {4}
    for damaged in ("[", "[1]"):
        (tmp_path / "generation_config.json").write_text(damaged)
        with pytest.raises(CannotMeasure, match="generation_config"):
            ChatTemplate(tmp_path)


def test_without_a_template_messages_are_lines(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, None)
    template = ChatTemplate(tmp_path)
    assert template.is_plain
    assert template.end_of_answer == ()
    transcript = Transcript(template, Random(0), system="Be brief.")
    transcript.say(Exchange("Hello!", "Hi!"))
    transcript.say(Exchange("What is 1 + 1?", "2"))
    assert template.decode(tuple(transcript.tokens)) == "Be brief.\nHello!\nHi!\nWhat is 1 + 1?\n2"


def test_a_template_may_refuse_system_messages(tmp_path: Path, template: ChatTemplate) -> None:
    refuse = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    save_tokenizer(tmp_path, refuse + CHATML)
    assert not ChatTemplate(tmp_path).takes_system
    assert template.takes_system


def test_a_template_that_walks_parts_is_given_parts(tmp_path: Path, template: ChatTemplate) -> None:
    walked = "{% for p in message['content'] %}{{ p['text'] }}{% endfor %}"
    save_tokenizer(tmp_path, CHATML.replace(" + message['content'] + ", " }}" + walked + "{{ "))
    in_parts = ChatTemplate(tmp_path)
    assert in_parts.takes_system
    assert in_parts.system("Be brief.") == template.system("Be brief.")
    said = Exchange("My dog is called Rex.", "OK.")
    assert in_parts.exchange(said) == template.exchange(said)
    assert in_parts.first_question("Hello!") == template.first_question("Hello!")


@pytest.mark.parametrize(
    ("chat_template", "reason"),
    [
        ("{{ messages | length }}", "writes a user's message neither given as a text nor as parts"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[-1]['content'] }}", "leaves out what was said before"),
        ("{{ raise_exception('one turn') if messages | length > 2 }}{{ messages[0]['content'] }}", "one turn"),
    ],
)
def test_a_template_that_loses_what_is_said_is_not_measured(tmp_path: Path, chat_template: str, reason: str) -> None:
    save_tokenizer(tmp_path, chat_template)
    with pytest.raises(CannotMeasure, match=reason):
        ChatTemplate(tmp_path)


def test_a_template_may_leave_out_system_messages(tmp_path: Path) -> None:
    save_tokenizer(tmp_path, CHATML.replace("in messages", "in messages if message['role'] != 'system'"))
    assert not ChatTemplate(tmp_path).takes_system


def test_no_tokenizer_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="no tokenizer can be loaded"):
        ChatTemplate(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"), [("tokenizer", '{"model": {"type": "Newer"}}'), ("tokenizer_config", "[]")]
)
def test_a_tokenizer_of_a_newer_library_or_a_broken_one_is_an_error_in_words(
    tmp_path: Path, name: str, content: str
) -> None:
    save_tokenizer(tmp_path, CHATML)
    (tmp_path / f"{name}.json").write_text(content)
    with pytest.raises(CannotMeasure, match="no tokenizer can be loaded"):
        ChatTemplate(tmp_path)


def test_whoever_interrupts_the_loading_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ChatTemplate(tmp_path)


def test_a_missing_library_names_its_cure(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(CannotMeasure, match=r"'transformers' is missing; install it with: pip install 'kakeya-worker"):
        ChatTemplate(directory)


@pytest.mark.parametrize("told_by", ["user", "system"])
def test_questions_stand_where_they_should(template: ChatTemplate, told_by: str) -> None:
    targets = (1, 64, 100, 200, 400)
    for seed in range(10):
        dialogue = recall.write(template, Random(seed), targets, told_by)
        assert [question.target for question in dialogue.questions][-3:] == [100, 200, 400]
        tokens: list[int] = []
        for question in dialogue.questions:
            tokens += question.before
            assert len(tokens) == question.start
            asked_at, sight = question.start + len(question.tokens) - 1, question.sight
            assert question.target - 30 < sight.first <= question.target
            told = template.decode(tuple(tokens[asked_at - sight.first : asked_at - sight.last + 1]))
            assert facts.stands_in(dialogue.value, told), "the telling is where the distances say"
            assert not facts.stands_in(dialogue.value, template.decode(tuple(tokens[asked_at - sight.last + 1 :])))
            assert len(question.tokens) + ANSWER_TOKENS <= dialogue.longest_probe
        text = template.decode(tuple(tokens))
        assert text.casefold().count(dialogue.value.casefold()) == 1, "told once and never repeated"
        if told_by == "system":
            assert facts.stands_in(dialogue.value, template.decode(tuple(tokens[: dialogue.num_system_tokens])))


def test_a_question_that_is_too_near_is_not_asked(template: ChatTemplate) -> None:
    dialogue = recall.write(template, Random(0), (1, 2, 3), "user")
    assert dialogue.questions == ()
    assert dialogue.longest_probe == ANSWER_TOKENS


def test_fillers_fill_up_to_a_length_and_not_further(template: ChatTemplate) -> None:
    for seed in range(20):
        transcript = Transcript(template, Random(seed))
        transcript.fill(until=500)
        assert 470 < len(transcript) <= 500


def test_several_facts_are_told_in_the_first_half(template: ChatTemplate) -> None:
    for seed in range(10):
        dialogue = multi_turn.write(template, Random(seed), 700)
        assert len(dialogue.asked) == multi_turn.MOST_FACTS
        assert 670 < len(dialogue.tokens) <= 700
        for fact in dialogue.asked:
            assert fact.told_at <= 350
            told = template.decode(dialogue.tokens[fact.told_at : fact.told_until])
            assert facts.stands_in(fact.value, told)
            assert told.rstrip().endswith("assistant"), "up to where the answer begins"
        text = template.decode(dialogue.tokens).casefold()
        assert all(text.count(fact.value.casefold()) == 1 for fact in dialogue.asked)


def test_short_dialogues_have_fewer_facts() -> None:
    assert [multi_turn.num_facts(length) for length in (10, 155, 156, 10_000)] == [0, 0, 3, multi_turn.MOST_FACTS]


def test_texts_are_dialogues_of_one_length(template: ChatTemplate) -> None:
    text = perplexity.write(template, Random(0), 600)
    assert len(text.tokens) == len(text.is_answer) == 600
    assert 0.2 < sum(text.is_answer) / 600 < 0.7
    assert facts.ACKNOWLEDGED in template.decode(text.tokens)


def test_a_given_text_is_cut() -> None:
    tokens = tuple(range(100))
    assert [text.tokens for text in perplexity.cut(tokens, 40, 9)] == [tokens[:40], tokens[40:80]]
    assert [text.tokens for text in perplexity.cut(tokens, 40, 1)] == [tokens[:40]]
    assert [text.tokens for text in perplexity.cut(tokens, 400, 9)] == [tokens]
    assert not any(perplexity.cut(tokens, 40, 1)[0].is_answer)
    with pytest.raises(CannotMeasure, match="has 31 tokens"):
        perplexity.cut(tokens[:31], 40, 1)


def test_distances_are_two_an_octave_up_to_beyond_twice_the_capacity() -> None:
    assert default_distances(68, ()) == (16, 23, 32, 45, 64, 91, 142)
    assert default_distances(1024, ())[-3:] == (1024, 1448, 2150)
    assert default_distances(4, ()) == (8,)


def test_distances_reach_to_both_sides_of_each_windows_edge() -> None:
    distances = default_distances(1024, (40, 128, 256, 1020))
    assert {128 - ANSWER_TOKENS, 128 + 48, 256 - ANSWER_TOKENS, 256 + 48, 1020 - ANSWER_TOKENS, 1020 + 48} <= {
        *distances
    }
    assert 8 not in distances, "nearer than any question"
    assert distances == tuple(sorted(set(distances)))
    assert 91 not in distances, "next to 96 no filler fits between the two"


def test_no_value_stands_in_what_is_said_of_another_fact() -> None:
    for seed in range(300):
        random, known = Random(seed), list[facts.Fact]()
        for _ in range(6):
            known.append(facts.draw(random, known))
        for fact in known:
            others = [other for other in known if other is not fact]
            said = " ".join(" ".join((each.told, each.noted, each.answer, *each.asked)) for each in others)
            assert not facts.stands_in(fact.value, said)
