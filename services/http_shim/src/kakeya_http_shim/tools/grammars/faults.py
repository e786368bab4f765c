"""Which tool is at fault where a grammar of calls cannot be used."""

import re

# As the library says it of a grammar in Lark, whose lines it quotes behind that:
# "at 3(8): failed to compile JSON schema: Unimplemented keys: ..."
_PLACE = re.compile(r".*?\bat (\d+)\(\d+\): (?:failed to compile JSON schema: )?(.*?)(?:\n +\d+ \| .*)?", re.DOTALL)
_RULE = re.compile(r"(?:args|value)_(\d+)[_:]", re.IGNORECASE)


def of_schema(grammar: str, message: str) -> tuple[int, str] | None:
    """The place of the tool whose schema it is, and what is wrong with that; None: it is no tool's alone.

    Args:
        grammar: that the runtime was given.
        message: of the runtime's refusal.
    """
    if (place := _PLACE.fullmatch(message)) is None:
        return None
    lines = grammar.split("\n")
    number = int(place[1]) - 1
    rule = _RULE.match(lines[number]) if number < len(lines) else None
    return (int(rule[1]), place[2].strip()) if rule else None
