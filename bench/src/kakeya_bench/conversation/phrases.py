"""What the bench's own messages are made of."""

KINDS = (
    "Hello! My name is {name}, I live in {place}, and I have a {color} {thing} and "
    "a {animal}. What would you like to know?",
    "{name} and I are planning a trip to {place} in {month}. How many days should "
    "we stay, and where do we find a {thing}?",
    "I bought a {color} {thing} in {place} for {number} coins. Please remember "
    "that, and tell me if it was too much for it.",
    "Please write a short note to {name}: the {color} {thing} arrives in {place} "
    "on the {number}th of {month}, before noon.",
    "If {number} {animal}s eat {number} apples a week, how many apples do they eat "
    "in {month}, and what does {name} say to it?",
    "Give me {number} reasons why a {animal} from {place} cannot be {color}, and "
    "the best one first. {name} asked me that.",
    "What did I say about {name} and the {thing} from {place}? Was it the "
    "{color} one, or the one that came in {month}?",
    "Let us talk about something else. Do you like {animal}s? I have {number} of "
    "them, the {color} one is called {name}.",
    "Correct this, and say what was wrong: me and {name} has saw the {color} {animal} "
    "in {place}, it were more big than a {thing}.",
    "The log says: {month} {number}, {place}, the {color} {thing} answered {name} "
    "after {number} seconds. What does it mean?",
    "Which is larger, a {animal} or a {thing}, and which one would {name} rather "
    "take along to {place} in {month}, and why?",
    "Summarize what we have said about {name} and {place} in two sentences, and "
    "begin with the {color} {thing} of {month}.",
)
"""Messages with places for words, all of about 23: turns can only be compared where they have about the same to do."""

WORDS = {
    "name": ("Laura", "Ben", "Chiara", "Deniz", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kofi", "Lena"),
    "place": ("Oslo", "Lima", "Kyoto", "Accra", "Perth", "Quito", "Riga", "Tunis", "Utrecht", "Hanoi", "Porto", "Nome"),
    "color": ("red", "green", "blue", "yellow", "black", "white", "brown", "grey", "orange", "purple"),
    "animal": ("falcon", "owl", "fox", "badger", "otter", "heron", "goat", "mole", "whale", "lynx", "toad", "crane"),
    "thing": ("lamp", "chair", "clock", "bicycle", "kettle", "violin", "ladder", "mirror", "stove", "umbrella"),
    "month": ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October"),
    "number": tuple(str(number) for number in range(2, 29)),
}
"""What stands in each place."""
