"""Values of facts: lists so long that a guess is right once in 25 times at best; and words of fillers."""

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES: Final = _words(
    "Anna Ben Clara David Emma Grace Henry Iris Jack Karen Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar Vera "
    "Walter Yara Zoe Adam Bella Carl Diana Erik Fiona George Hannah Ivan Julia Kevin Laura Marco Nina Oscar Petra "
    "Sofia Tom Ursula Victor Wendy Alice Cora Daniel Elena Frank Gina Hugo Jonas Lukas Nora Otto Priya Robin Sara Theo"
)
PETS: Final = _words(
    "Rex Bello Luna Milo Coco Rocky Daisy Simba Nala Molly Lucky Shadow Ginger Smokey Oreo Biscuit Teddy Ziggy Pixel "
    "Waffle Noodle Mochi Cleo Loki Thor Bandit Willow Hazel Cookie Peanut Rusty Scout Snowy Buddy"
)
CITIES: Final = _words(
    "Paris Rome Berlin Madrid London Lisbon Vienna Prague Oslo Athens Dublin Cairo Tokyo Lima Quito Boston Chicago "
    "Seattle Denver Toronto Sydney Delhi Mumbai Seoul Osaka Geneva Zurich Milan Naples Venice Hamburg Munich Warsaw "
    "Helsinki Stockholm Copenhagen Brussels Amsterdam Porto Valencia Nairobi Lagos Accra Havana Bogota Montreal"
)
JOBS: Final = _words(
    "doctor teacher baker pilot nurse painter lawyer farmer singer writer driver engineer gardener plumber chemist "
    "dentist waiter tailor carpenter butcher librarian architect journalist mechanic sailor"
)
SECRETS: Final = _words(
    "maple tiger river stone cloud amber falcon ocean pepper comet forest lemon marble winter rocket velvet copper "
    "meadow harbor saturn bamboo canyon ember glacier island jungle lantern mango nectar"
)
ANIMALS: Final = _words("fox bear wolf owl rabbit mouse duck goat sheep cow pig frog snake lion crow deer otter badger")
OBJECTS: Final = _words(
    "key book lamp phone wallet hat coat bag map ring clock cup knife ladder camera umbrella basket"
)
PLACES: Final = _words(
    "kitchen garden garage cellar attic office library bathroom bedroom hall shed barn tower station"
)
ADJECTIVES: Final = _words("small big old young quiet happy clever lazy brave shy fast slow warm cold tall tiny gentle")
VERBS: Final = _words("sleeps runs sings waits eats jumps hides plays walks sits dances rests works swims dreams")
GOODS: Final = _words(
    "apples pears plums bread butter cheese eggs rice pasta salt sugar flour onions carrots beans soap"
)
OPPOSITES: Final = _words(
    "hot-cold big-small old-young fast-slow day-night up-down full-empty hard-soft wet-dry high-low"
)
CAPITALS: Final = _words("France-Paris Italy-Rome Germany-Berlin Spain-Madrid Norway-Oslo Greece-Athens Japan-Tokyo")
