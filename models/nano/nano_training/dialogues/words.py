"""Words that conversations are made of."""

from typing import Final


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(","))


NAMES: Final = _words(
    "Anna Ben Clara David Emma Felix Grace Henry Iris Jack Karen Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Umar "
    "Vera Walter Xenia Yara Zoe Adam Bella Carl Diana Erik Fiona George Hannah Ivan Julia Kevin Laura Marco Nina Oscar "
    "Petra Ralf Sofia Tom Ursula Victor Wendy Alice Bruno Cora Daniel Elena Frank Gina Hugo Ines Jonas Kira Lukas Mia "
    "Nora Otto Priya Robin Sara Theo Ada Ravi Mei Kofi Aiko Omar Lena Max Ruth Peter Lucy James Ella Simon Eva Martin "
    "Chloe Andre Naomi Pablo Ingrid Tariq Yusuf Amara Dmitri Helga Jasper Leila"
)
PETS: Final = _words(
    "Rex Bello Luna Milo Coco Rocky Daisy Simba Nala Felix Bruno Molly Lucky Shadow Ginger Pepper Smokey Oreo Biscuit "
    "Teddy Ziggy Pixel Waffle Noodle Mochi Sushi Cleo Loki Thor Bandit Willow Hazel Maple Cookie Peanut Rusty Scout "
    "Tiger Snowy Buddy"
)
CITIES: Final = _phrases(
    "Paris, Rome, Berlin, Madrid, London, Lisbon, Vienna, Prague, Oslo, Athens, Dublin, Cairo, Tokyo, Lima, Quito, "
    "Boston, Chicago, Seattle, Denver, Toronto, Sydney, Delhi, Mumbai, Seoul, Osaka, Geneva, Zurich, Milan, Naples, "
    "Venice, Hamburg, Munich, Warsaw, Helsinki, Stockholm, Copenhagen, Brussels, Amsterdam, Porto, Valencia, Nairobi, "
    "Lagos, Accra, Havana, Bogota, Santiago, Montreal, Austin, Dallas, Miami"
)
COLORS: Final = _words("red blue green yellow black white orange purple brown pink gray silver gold violet turquoise")
FOODS: Final = _words(
    "pizza pasta soup rice salad bread cheese sushi tacos curry noodles pancakes dumplings lasagna risotto chili "
    "burgers waffles omelette falafel"
)
DRINKS: Final = _words("coffee tea water milk juice lemonade cocoa cider beer wine")
FRUITS: Final = _words(
    "apples pears plums cherries grapes bananas oranges lemons peaches berries melons figs mangos kiwis"
)
THINGS_TO_BUY: Final = _words(
    "apples pears plums cherries grapes bananas lemons milk bread butter cheese eggs rice pasta salt sugar flour "
    "onions carrots beans tomatoes potatoes honey tea coffee soap paper candles"
)
JOBS: Final = _words(
    "doctor teacher baker pilot nurse painter lawyer farmer singer writer driver engineer gardener plumber chemist "
    "dentist waiter tailor carpenter butcher librarian architect journalist mechanic sailor"
)
ANIMALS: Final = _words(
    "fox dog cat horse bear wolf owl rabbit mouse duck goat sheep cow pig frog snake lion tiger whale crow deer hen "
    "otter badger camel"
)
HOBBIES: Final = _words(
    "chess tennis football swimming painting reading cooking hiking dancing fishing gardening photography climbing "
    "knitting singing running sailing skiing"
)
INSTRUMENTS: Final = _words("piano guitar violin flute drums trumpet cello harp clarinet organ")
DAYS: Final = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS: Final = _words("January February March April May June July August September October November December")
OBJECTS: Final = _words(
    "key book lamp phone wallet hat coat bag map ring clock cup knife ladder camera umbrella ticket letter basket "
    "hammer rope candle mirror pen"
)
PLACES: Final = _words(
    "kitchen garden garage cellar attic office library bathroom bedroom hall shed barn tower workshop car drawer "
    "cupboard balcony school station"
)
ADJECTIVES: Final = _words(
    "small big old young quiet loud happy sad clever lazy brave shy fast slow warm cold bright dark soft tall tiny "
    "hungry tired gentle"
)
VERBS: Final = _words("sleeps runs sings waits eats jumps hides plays walks sits dances rests works swims dreams hums")
PREPOSITIONS: Final = _words("in near behind beside under above outside inside")
ADVERBS: Final = _words("slowly quietly happily today again often never always alone early")
NOUNS: Final = ANIMALS + OBJECTS + PLACES
PASSWORD_WORDS: Final = _words(
    "maple tiger river stone cloud amber falcon ocean pepper silver comet forest lemon marble winter rocket velvet "
    "copper meadow harbor saturn bamboo canyon ember glacier island jungle lantern mango nectar"
)
OPPOSITES: Final = tuple(
    tuple(pair.split("-"))
    for pair in _words(
        "hot-cold big-small old-young fast-slow day-night up-down open-closed full-empty hard-soft wet-dry early-late "
        "light-dark happy-sad rich-poor strong-weak high-low loud-quiet left-right long-short first-last"
    )
)
CAPITALS: Final = tuple(
    tuple(pair.split("-"))
    for pair in _words(
        "France-Paris Italy-Rome Germany-Berlin Spain-Madrid England-London Portugal-Lisbon Austria-Vienna "
        "Norway-Oslo Greece-Athens Ireland-Dublin Egypt-Cairo Japan-Tokyo Peru-Lima Ecuador-Quito Poland-Warsaw "
        "Finland-Helsinki Sweden-Stockholm Denmark-Copenhagen Belgium-Brussels Kenya-Nairobi Ghana-Accra Cuba-Havana"
    )
)
