"""Fillers: exchanges that stand between a fact and its question and have nothing to do with it."""

from collections.abc import Collection
from random import Random
from typing import Final

from kakeya_bench.quality.material import facts
from kakeya_bench.quality.material.facts import Exchange, stands_in

GREETING: Final = Exchange("Hello!", "Hello! How can I help you today?")
_SMALL_TALK: Final = (
    GREETING,
    Exchange("Good morning!", "Good morning! How can I help you today?"),
    Exchange("How are you?", "I am well, thank you. How are you?"),
    Exchange("I am fine.", "I am glad to hear that."),
    Exchange("I am tired.", "I am sorry to hear that. I hope it gets better soon."),
    Exchange("Thank you!", "You are welcome!"),
    Exchange("Very good!", "Thank you! I am glad you like it."),
    Exchange("All right.", "Good. What shall we do next?"),
    Exchange("What time is it?", "I have no clock, so I do not know."),
    Exchange("Can you sing?", "No, I can only read and write text."),
    Exchange("Let us talk.", "Gladly. What would you like to talk about?"),
    Exchange("Can you help me?", "Of course. What do you need?"),
    Exchange("Sorry.", "No problem at all."),
)


def draw(random: Random, forbidden: Collection[str]) -> Exchange:
    """An exchange in which none of the forbidden values stands."""
    while True:
        exchange = random.choices(_KINDS, _WEIGHTS)[0](random)
        if not any(stands_in(value, f"{exchange.question} {exchange.answer}") for value in forbidden):
            return exchange


def _small_talk(random: Random) -> Exchange:
    return random.choice(_SMALL_TALK)


def _sum(random: Random) -> Exchange:
    operator = random.choice("+-*")
    left, right = (random.randint(0, 10 if operator == "*" else 99) for _ in range(2))
    if operator == "-":
        left, right = max(left, right), min(left, right)
    result = {"+": left + right, "-": left - right, "*": left * right}[operator]
    problem = f"{left} {operator} {right}"
    question = random.choice(("What is {}?", "How much is {}?", "Calculate {}."))
    return Exchange(question.format(problem), f"{problem} = {result}.")


def _quote(random: Random) -> Exchange:
    sentences = " ".join(_sentence(random) for _ in range(random.randint(1, 3)))
    return Exchange(random.choice(("Repeat: {}", "Say: {}", "Please repeat this: {}")).format(sentences), sentences)


def _sentence(random: Random) -> str:
    subject = f"The {random.choice(facts.ADJECTIVES)} {random.choice(facts.ANIMALS)}"
    preposition = random.choice(("in", "near", "behind", "beside", "under"))
    return f"{subject} {random.choice(facts.VERBS)} {preposition} the {random.choice(facts.OBJECTS + facts.PLACES)}."


def _list(random: Random) -> Exchange:
    items = random.sample(facts.GOODS, random.randint(2, 6))
    given = f"{', '.join(items[:-1])} and {items[-1]}"
    return Exchange(f"Make a list of {given}.", "\n".join(f"- {item}" for item in items))


def _opposite(random: Random) -> Exchange:
    first, second = random.sample(random.choice(facts.OPPOSITES).split("-"), 2)
    return Exchange(f"What is the opposite of {first}?", f"The opposite of {first} is {second}.")


def _capital(random: Random) -> Exchange:
    country, city = random.choice(facts.CAPITALS).split("-")
    return Exchange(f"What is the capital of {country}?", f"The capital of {country} is {city}.")


_KINDS: Final = (_small_talk, _sum, _quote, _list, _opposite, _capital)
_WEIGHTS: Final = (16, 40, 26, 10, 4, 4)
