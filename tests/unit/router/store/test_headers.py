"""What the headers of the Lua scripts say is what these do."""

import re
from importlib import resources

import pytest

from kakeya_router.store import outcomes
from kakeya_router.store.connection import _arranged as arranged
from kakeya_router.store.scripts import Script, read, scripts

LUA = resources.files("kakeya_router.store").joinpath("lua")
FILES = [file for room in LUA.iterdir() if room.name != "prelude" for file in room.iterdir()]
TEXTS = {file.name.removesuffix(".lua"): file.read_text() for file in FILES}
PRELUDE = {file.name.removesuffix(".lua"): file.read_text() for file in LUA.joinpath("prelude").iterdir()}
PARTS = [part.strip() for text in PRELUDE.values() for part in text.split("\n\n") if "\nlocal " in f"\n{part}"]
EACH = pytest.mark.parametrize("name", sorted(TEXTS))
ONE = "-- Does something.\n-- key list\n-- arg first, second: both\n-- out done\nreturn 'done'\n"


def body(text: str) -> str:
    """Without comments."""
    return re.sub(r"--.*", "", text)


def named(text: str) -> tuple[set[str], set[str]]:
    """Keys and arguments of a header itself, without those that all scripts of a session have."""
    script = read("one", "", text.replace("\n-- of a session", ""))
    keys = set(re.findall(r"(\w+) = (?:KEYS\[|rest\(KEYS)", script.text))
    return keys, {*script.arguments, script.rest} - {""}


def used(text: str) -> tuple[set[str], set[str]]:
    """With what the parts of the prelude that it uses use, but for the lines that give the names."""
    return set(re.findall(r"\bkey\.(\w+)", body(text))), set(re.findall(r"\barg\.(\w+)", body(text)))


@EACH
def test_what_a_header_names_is_used_and_nothing_else(name: str) -> None:
    text = TEXTS[name]
    shared = named(PRELUDE["session"]) if "\n-- of a session" in text else (set(), set())
    for own, common, found in zip(named(text), shared, used(scripts()[name].text), strict=True):
        assert own <= found <= own | common
        assert not own & common
    assert not re.search(r"\b(KEYS|ARGV)\b", text)


def test_all_that_the_prelude_names_and_defines_is_used() -> None:
    texts = [script.text for script in scripts().values()]
    for part in PARTS:
        assert any(part in text for text in texts), part
    names = [name for part in PARTS for name in re.findall(r"^local (?:function )?(\w+)", part, re.MULTILINE)]
    assert len(names) == len(set(names))
    for own, found in zip(named(PRELUDE["session"]), used("".join(texts)), strict=True):
        assert own <= found
    assert not re.search(r"\b(KEYS|ARGV)\b", "".join(PARTS))


def test_a_script_has_of_the_prelude_what_it_uses_and_what_that_uses() -> None:
    prelude = "-- A file.\n\nlocal B = 2\n\n-- Uses B.\nlocal function one()\n  return B\nend\n\nlocal C = 3\n"
    assert "B = 2\n-- Uses B.\nlocal function one" in read("x", prelude, "-- C\nreturn one('C')").text
    assert "local C" not in read("x", prelude, "-- C\nreturn one('C')").text
    assert "local" not in read("x", prelude, "return one_more").text.partition("\nlocal key, arg = {}, {}\n")[2]


@EACH
def test_what_a_header_says_of_outcomes_is_what_is_answered(name: str) -> None:
    text, said = body(TEXTS[name]), set(scripts()[name].outcomes)
    returned = re.findall(r"return (?:\{([^,}\n]*)|(.*))", text)
    answered = {word for pair in returned for word in re.findall(r"(?:^|and |or )'(\w+)'(?!\))", "".join(pair))}
    if "return {refusal}" in text:
        answered |= {"away", "full"}
    assert answered == said
    assert bool(said) != ("\n-- returns " in TEXTS[name])


@EACH
def test_the_outcomes_of_a_script_are_an_enumeration(name: str) -> None:
    found = getattr(outcomes, name.title().replace("_", ""), ())
    assert [outcome.value for outcome in found] == list(scripts()[name].outcomes)


def test_arguments_go_by_name() -> None:
    script = read("one", PRELUDE["session"], ONE)
    assert arranged(script, {"second": 2, "first": 1}) == [1, 2]
    for wrong in ({"first": 1}, {"first": 1, "second": 2, "third": 3}, {"first": 1, "third": 3}):
        with pytest.raises(TypeError, match=r"one\.lua"):
            arranged(script, wrong)


def test_the_last_names_can_stand_for_many() -> None:
    script = read("one", "", ONE.replace("second", "others..."))
    assert arranged(script, {"others": [2, 3], "first": 1}) == [1, 2, 3]
    assert arranged(script, {"others": [], "first": 1}) == [1]
    with pytest.raises(TypeError):
        arranged(script, {"first": 1})


def test_the_names_of_a_session_come_first() -> None:
    script = read("one", PRELUDE["session"], ONE.replace("-- key", "-- of a session\n-- key"))
    assert isinstance(script, Script)
    assert script.arguments == ("session_id", "first", "second")
    assert "list = KEYS[20]" in script.text


@pytest.mark.parametrize("line", ["-- arg no good: that", "-- arg a..., b", "-- out done{record}", "-- key list,"])
def test_a_header_that_cannot_be_read_is_an_error_at_once(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        read("one", "", f"{ONE}{line}\n")
