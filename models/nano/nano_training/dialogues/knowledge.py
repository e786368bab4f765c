"""The little that the model knows of the world."""

from random import Random

from nano_training.dialogues import words
from nano_training.dialogues.message import Message, exchange
from nano_training.dialogues.wording import typed


def opposite(random: Random) -> list[Message]:
    first, second = random.sample(random.choice(words.OPPOSITES), 2)
    question = random.choice(("What is the opposite of {}?", "Tell me the opposite of {}.")).format(first)
    return exchange(typed(random, question), f"The opposite of {first} is {second}.")


def capital(random: Random) -> list[Message]:
    country, city = random.choice(words.CAPITALS)
    question = random.choice(
        ("What is the capital of {}?", "Which city is the capital of {}?", "Name the capital of {}.")
    )
    return exchange(typed(random, question.format(country)), f"The capital of {country} is {city}.")


def next_day(random: Random) -> list[Message]:
    cycle = random.choice((words.DAYS, words.MONTHS))
    place = random.randrange(len(cycle))
    if random.random() < 0.6:
        answer, word = cycle[(place + 1) % len(cycle)], "after"
    else:
        answer, word = cycle[place - 1], "before"
    kind = "day" if cycle is words.DAYS else "month"
    question = random.choice(
        (f"Which {kind} comes {word} {{}}?", f"What {kind} comes {word} {{}}?", f"What is {word} {{}}?")
    )
    return exchange(typed(random, question.format(cycle[place])), f"{answer} comes {word} {cycle[place]}.")


def knowledge(random: Random) -> list[Message]:
    return random.choice((opposite, capital, next_day))(random)
