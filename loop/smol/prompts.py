"""The prompts of the world `smol`: a request about a topic, and one or two demands on the answer.

The demands are IFEval's families and similar checks, which a function decides. Topics of the dev
and held-out splits are in no other split, so a policy learns the demand and not the topic.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ...stores.records import Check, Split

TRAIN_TOPICS = (
    "rain", "bicycles", "bread", "honey bees", "libraries", "tea", "trains", "mountains", "salt",
    "paper", "rivers", "cats", "gardens", "bridges", "the sea", "chess", "snow", "maps", "coffee",
    "windmills", "apples", "shoes", "kites", "castles", "volcanoes", "pencils", "camels", "cheese",
    "farming", "wool", "deserts", "mirrors", "boats", "storms", "kitchens", "cinema", "forests",
    "markets", "elephants", "sleep", "umbrellas", "buttons", "candles", "carpets", "ladders",
    "whales", "foxes", "sheep", "spiders", "butterflies", "owls", "frogs", "ants", "wolves",
    "penguins", "dolphins", "turtles", "lemons", "potatoes", "onions", "carrots", "rice", "sugar",
    "pepper", "chocolate", "soup", "pasta", "grapes", "mushrooms", "tomatoes", "pumpkins", "nuts",
    "olives", "cinnamon", "swimming", "running", "hiking", "fishing", "tennis", "football",
    "sailing", "skiing", "dancing", "painting", "singing", "drawing", "knitting", "photography",
    "camping", "juggling", "guitars", "drums", "violins", "trumpets", "radio", "newspapers",
    "letters", "postcards", "dictionaries", "poems", "fairy tales", "diaries", "riddles", "jokes",
    "airports", "buses", "trams", "ferries", "tunnels", "canals", "harbours", "roads", "elevators",
    "traffic lights", "windows", "doors", "roofs", "stairs", "chimneys", "fences", "balconies",
    "cellars", "hotels", "museums", "theatres", "schools", "hospitals", "bakeries", "parks",
    "playgrounds", "zoos", "offices", "factories", "the wind", "fog", "ice", "clouds", "rainbows",
    "thunder", "earthquakes", "waterfalls", "lakes", "islands", "caves", "beaches", "valleys",
    "the stars", "winter", "summer", "mornings", "weekends",
)  # fmt: skip
DEV_TOPICS = (
    "clocks", "glass", "soap", "parrots", "boats on lakes", "dogs", "pianos", "ice skating",
    "towels", "spoons", "baskets", "keys", "coins", "stamps", "magnets", "batteries", "scissors",
    "needles", "pillows", "blankets", "horses", "goats", "rabbits", "snails", "crows", "sharks",
    "pears", "cherries", "garlic", "ginger", "cycling", "archery", "gymnastics", "flutes",
    "magazines", "proverbs", "taxis", "lifeboats", "attics", "autumn",
)  # fmt: skip
HELD_OUT_TOPICS = (
    "the moon", "music", "lighthouses", "wool socks", "kettles", "hammers", "ropes", "wheels",
    "bells", "flags", "compasses", "telescopes", "lanterns", "toothbrushes", "backpacks", "gloves",
    "hats", "eagles", "bears", "squirrels", "octopuses", "swans", "hedgehogs", "lizards",
    "bananas", "strawberries", "corn", "beans", "butter", "eggs", "vanilla", "milk", "surfing",
    "rowing", "volleyball", "chemistry", "geometry", "history", "pottery", "gardening", "harps",
    "crosswords", "calendars", "subways", "helicopters", "fountains", "towers", "glaciers",
    "spring", "holidays",
)  # fmt: skip


SEED = 11
TOPICS: Mapping[Split, tuple[str, ...]] = {
    "train": TRAIN_TOPICS,
    "dev": DEV_TOPICS,
    "held-out": HELD_OUT_TOPICS,
}
PER_TOPIC: Mapping[Split, int] = {"train": 14, "dev": 5, "held-out": 6}
"""Prompts about each topic: 2,100 to train on, 200 dev, 300 held out."""
TWO_DEMANDS = 0.25
"""The share of prompts with two demands."""
TOGETHER = "two demands"
"""The family of prompts with two demands."""
REQUESTS = (
    "Write a short note about {}.", "Explain {} to a child.", "Give some advice about {}.",
    "Describe {} in a few words.", "Tell me something interesting about {}.",
    "What is good about {}?", "Write a short greeting card that mentions {}.",
    "Why do people like {}?", "What should a beginner know about {}?", "Say something about {}.",
)  # fmt: skip
KEYWORDS = ("blue", "morning", "together", "simple", "careful", "golden", "quiet", "always")
PHRASES = ("That is all.", "Thank you for reading.", "Have a nice day.", "Now you know.")
BEGINNINGS = ("My answer is", "Here we go", "Let us begin", "First of all")


@dataclass(frozen=True, slots=True)
class SmolPrompt:
    """A request about a topic with its demands; `family` names the demand that it makes."""

    text: str
    split: Split
    topic: str
    family: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Demand:
    """The text of a demand on an answer, and the check that decides it."""

    family: str
    text: str
    check: Check


def demands(rng: random.Random) -> list[Demand]:
    """Return a demand of each family, its parameters drawn at random."""

    def made(family: str, text: str, kind: str, **given: object) -> Demand:
        argument = json.dumps(given, sort_keys=True) if given else ""
        return Demand(family, text, Check(kind=kind, argument=argument))

    def plain(family: str, text: str, kind: str, argument: str = "") -> Demand:
        return Demand(family, text, Check(kind=kind, argument=argument))

    few, many = rng.choice((15, 20, 25, 30)), rng.choice((30, 35, 40))
    count, marked, absent = rng.choice((2, 3, 4)), rng.choice((1, 2)), rng.choice(("very", "also"))
    word, other = rng.sample(KEYWORDS, 2)
    end, start = rng.choice(PHRASES), rng.choice(BEGINNINGS)
    return [
        made("no comma", "Do not use any commas.", "punctuation:no_comma"),
        plain(
            "lowercase",
            "Write everything in lowercase letters, without any capital letter.",
            "lowercase",
        ),
        plain("uppercase", "Write your whole answer in capital letters.", "uppercase"),
        made(
            "fewer words", f"Use fewer than {few} words.",
            "length_constraints:number_words", num_words=few, relation="less than",
        ),
        made(
            "more words", f"Use at least {many} words.",
            "length_constraints:number_words", num_words=many, relation="at least",
        ),
        made(
            "fewer sentences", f"Use fewer than {count} sentences.",
            "length_constraints:number_sentences", num_sentences=count, relation="less than",
        ),
        made(
            "bullets",
            f"Answer with exactly {count} bullet points, each on a line that starts with *.",
            "detectable_format:number_bullet_lists", num_bullets=count,
        ),
        made("quotation", "Put the whole answer in double quotation marks.", "startend:quotation"),
        made(
            "ending", f"End your answer with exactly these words: {end}",
            "startend:end_checker", end_phrase=end,
        ),
        plain("beginning", f"Start your answer with the words: {start}", "starts_with", start),
        made(
            "word twice", f"Use the word {word} at least twice.",
            "keywords:frequency", keyword=word, frequency=2, relation="at least",
        ),
        made(
            "two words", f"Use the words {word} and {other}.",
            "keywords:existence", keywords=[word, other],
        ),
        made(
            "avoided word", f"Do not use the word {absent}.",
            "keywords:forbidden_words", forbidden_words=[absent],
        ),
        made(
            "title", "Give it a title in double angular brackets, such as <<title>>.",
            "detectable_format:title",
        ),
        made(
            "highlights", f"Highlight at least {marked} parts with asterisks, such as *this*.",
            "detectable_format:number_highlighted_sections", num_highlights=marked,
        ),
        made(
            "postscript", "Add a postscript at the end that starts with P.S.",
            "detectable_content:postscript", postscript_marker="P.S.",
        ),
        made(
            "placeholders", f"Use at least {marked} placeholders in square brackets, like [name].",
            "detectable_content:number_placeholders", num_placeholders=marked,
        ),
        made(
            "paragraphs", "Write exactly 2 paragraphs, separated by ***.",
            "length_constraints:number_paragraphs", num_paragraphs=2,
        ),
        made("JSON", "Give the whole answer as JSON.", "detectable_format:json_format"),
        made(
            "two answers", "Give two different answers, separated by ******.",
            "combination:two_responses",
        ),
    ]  # fmt: skip


CLASHES = (
    {"lowercase", "uppercase"}, {"fewer words", "more words"}, {"fewer words", "two answers"},
    {"fewer words", "paragraphs"}, {"fewer sentences", "more words"},
    {"fewer sentences", "paragraphs"}, {"fewer sentences", "two answers"},
    {"fewer sentences", "bullets"}, {"paragraphs", "two answers"}, {"ending", "postscript"},
    {"bullets", "highlights"}, {"bullets", "paragraphs"}, {"beginning", "title"},
)  # fmt: skip
"""Demands that one answer can hardly meet together."""
ALONE = {"JSON", "quotation", "lowercase", "uppercase"}
"""Demands on the whole text, used alone: many others would contradict their form."""


def draw_prompt(topic: str, split: Split, rng: random.Random) -> SmolPrompt:
    """Draw a request about a topic, and its demands."""
    every = demands(rng)
    first = rng.choice(every)
    fits = [
        other
        for other in every
        if other.family not in {first.family, *ALONE}
        and not any({first.family, other.family} <= clash for clash in CLASHES)
    ]
    two = first.family not in ALONE and rng.random() < TWO_DEMANDS
    drawn = [first, rng.choice(fits)] if two else [first]
    request = rng.choice(REQUESTS).format(topic)
    return SmolPrompt(
        text=" ".join([request, *(demand.text for demand in drawn)]),
        split=split,
        topic=topic,
        family=TOGETHER if two else first.family,
        checks=tuple(demand.check for demand in drawn),
    )


@cache
def prompts(split: Split) -> tuple[SmolPrompt, ...]:
    """Return the prompts of a split, grouped by topic; all texts differ."""
    rng = random.Random(f"smol {SEED} {split}")
    found: dict[str, SmolPrompt] = {}
    for number, topic in enumerate(TOPICS[split], start=1):
        while len(found) < number * PER_TOPIC[split]:
            prompt = draw_prompt(topic, split, rng)
            found.setdefault(prompt.text, prompt)
    return tuple(found.values())
