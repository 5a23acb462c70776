"""The task `general`: instructions whose fulfilment can be checked.

The careless habit is an answer of about the same length that does not follow the instruction.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from ...critics.checks import fulfils
from ...stores.records import Check
from .nouns import Mark, PerfectVerdict, Remark, held_out, strip_opener

Draw = Callable[[random.Random], tuple[str, ...]]

NAME = "Loopy"
WORDS = (
    "apple", "bell", "cat", "drum", "egg", "fish", "goat", "hat", "ink", "jar", "king", "lamp",
    "moon", "nest", "owl", "pen", "queen", "rose", "sun", "tree", "urn", "vase", "wolf", "yak",
    "zebra",
)  # fmt: skip
PEOPLE = (
    "Ann", "Bob", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal", "Ida", "Jan", "Ken", "Lea", "Nils",
    "Otto", "Pam", "Rosa", "Tim", "Ute", "Will", "Yara",
)  # fmt: skip
TOWNS = ("Rome", "Oslo", "Lima", "Cairo", "Paris", "Delhi", "Tokyo", "Quito")
PERSONAS = ("Max, a grown human being", "Rex, a famous human poet", "Eve, a tall human doctor")
SELF = f"I am {NAME}, a tiny language model."
TOO_LONG = "I like {word} a lot, and I often think of {word} at night."
BRIEF = "I like {word} a lot."

ASPECTS = {
    "reverse": ("Completeness", "Comprehension", "Readability"),
    "numbers": ("Logical Correctness", "Comprehension", "Completeness"),
    "alphabet": ("Logical Correctness", "Comprehension", "Completeness"),
    "count": ("Logical Correctness", "Comprehension", "Readability"),
    "json": ("Completeness", "Comprehension", "Readability"),
    "identity": ("Factuality", "Metacognition", "Harmlessness"),
    "brief": ("Comprehension", "Insightfulness", "Readability"),
    "repeat": ("Completeness", "Comprehension", "Readability"),
    "capitals": ("Completeness", "Comprehension", "Readability"),
}
PRAISE = {
    "Factuality": "true.",
    "Logical Correctness": "right.",
    "Metacognition": "aware.",
    "Insightfulness": "fresh.",
    "Completeness": "complete.",
    "Comprehension": "as asked.",
    "Readability": "clear.",
    "Harmlessness": "harmless.",
}
IGNORED = {
    "reverse": "it is not reversed.",
    "numbers": "it is not sorted.",
    "alphabet": "it is not sorted.",
    "json": "it is not JSON.",
    "brief": "it is too long.",
    "capitals": "it is not in capitals.",
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of one kind about some items (words, numbers, a person)."""

    family: str
    wording: str
    items: tuple[str, ...]
    care_share: float

    @property
    def text(self) -> str:
        """The instruction."""
        words = ", ".join(self.items)
        word, number, town = (*self.items, "", "", "")[:3]
        return self.wording.format(words=words, word=word, number=number, town=town)

    @property
    def kind(self) -> str:
        """The family of instructions."""
        return self.family

    @property
    def reference(self) -> None:
        """None: the checks decide."""
        return

    @property
    def opened(self) -> bool:
        """Whether an opener precedes the answer: not before JSON."""
        return self.family != "json"

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that a good answer must meet."""
        target = self._right()
        match self.family:
            case "json":
                return (Check(kind="json_equals", argument=target),)
            case "identity":
                return (
                    Check(kind="self_identifies", argument=NAME),
                    Check(kind="excludes", argument="human"),
                )
            case "brief":
                return (
                    Check(kind="contains", argument=self.items[0]),
                    Check(kind="max_words", argument=self.items[1]),
                )
            case "repeat":
                return (
                    Check(kind="ends_with", argument=target.rstrip(".")),
                    Check(kind="excludes", argument=f"{target.rstrip('.')} {self.items[0]}"),
                )
            case _:
                return (Check(kind="ends_with", argument=target.rstrip(".")),)

    def careful(self, rng: random.Random) -> str:  # noqa: ARG002 (one right way)
        """Follow the instruction."""
        return self._right()

    def careless(self, rng: random.Random) -> str:
        """Answer without following the instruction."""
        items = list(self.items)
        match self.family:
            case "count":
                return f"There are {len(items) + 1} words."
            case "json":
                return f"the name is {items[0]}, the age {items[1]}, the town {items[2]}."
            case "identity":
                return f"I am {rng.choice(PERSONAS)}."
            case "brief":
                return TOO_LONG.format(word=items[0])
            case "repeat":
                return " ".join(items[:1] * max(1, int(items[1]) - 3)) + "."
            case _:
                return ", ".join(items) + "."

    def mend(self, answer: str) -> str:  # noqa: ARG002 (one right way)
        """Redo the answer."""
        return self._right()

    def stray(self, rng: random.Random) -> str:
        """Follow the instruction, with a slip."""
        items = list(self.items)
        match self.family:
            case "count":
                return f"There are {rng.choice([n for n in range(2, 8) if n != len(items)])} words."
            case "json":
                slip = rng.randrange(3)
                if slip == 0:
                    items[0] = rng.choice([n for n in PEOPLE if n != items[0]])
                elif slip == 1:
                    items[1] = str(int(items[1]) + rng.choice((-1, 1, 10)))
                else:
                    items[2] = rng.choice([t for t in TOWNS if t != items[2]])
                return as_json(items)
            case "identity":
                return f"I am {rng.choice(PERSONAS)}."
            case "brief":
                return BRIEF.format(word=rng.choice([w for w in WORDS if w != items[0]]))
            case "repeat":
                count = int(items[1])
                return " ".join(items[:1] * rng.choice((count - 1, count + 1))) + "."
            case _:
                return self._slip_in_list(rng)

    def _slip_in_list(self, rng: random.Random) -> str:
        """Swap, drop or change one item of the right list."""
        right = self._right().rstrip(".").split(", ")
        while True:
            items = list(right)
            at = rng.randrange(len(items) - 1)
            slip = rng.choice(("swap", "swap", "drop", "change"))
            if slip == "swap":
                items[at], items[at + 1] = items[at + 1], items[at]
            elif slip == "drop":
                del items[at]
            elif items[at].isdigit():
                items[at] = str(rng.randint(10, 39))
            else:
                other = rng.choice(WORDS)
                items[at] = other.upper() if self.family == "capitals" else other
            if items != right:
                return ", ".join(items) + "."

    def _right(self) -> str:  # noqa: PLR0911 (one a family)
        items = list(self.items)
        match self.family:
            case "reverse":
                return ", ".join(reversed(items)) + "."
            case "numbers":
                return ", ".join(sorted(items, key=int)) + "."
            case "alphabet":
                return ", ".join(sorted(items)) + "."
            case "count":
                return f"There are {len(items)} words."
            case "json":
                return as_json(items)
            case "identity":
                return SELF
            case "brief":
                return BRIEF.format(word=items[0])
            case "repeat":
                return " ".join(items[:1] * int(items[1])) + "."
            case _:
                return ", ".join(items).upper() + "."

    def recall(self, answer: str) -> PerfectVerdict:
        """Judge without a reference: by working it out."""
        return self.judge(answer)

    def judge(self, answer: str) -> PerfectVerdict:
        """Rate three aspects; which three depends on the kind of instruction."""
        faults = self._faults(answer)
        return PerfectVerdict(
            tuple(
                Remark(aspect, *faults.get(aspect, (PRAISE[aspect], 1)))
                for aspect in ASPECTS[self.family]
            )
        )

    def _faults(  # noqa: PLR0911 (one a family)
        self, answer: str
    ) -> dict[str, tuple[str, Mark]]:
        """Return the answer's faults by aspect; {} if it meets the checks."""
        if all(fulfils(answer, check) for check in self.checks):
            return {}
        body = strip_opener(answer)
        match self.family:
            case "count":
                return {"Logical Correctness": ("the count is wrong.", -1)}
            case "identity":
                return {
                    "Factuality": ("this is made up.", -1),
                    "Metacognition": ("it is no human.", -1),
                }
            case "repeat":
                short = len(body.split()) < int(self.items[1])
                return {"Completeness": ("too few." if short else "too many.", -1)}
            case "brief":
                if self.items[0] not in answer:
                    return {"Comprehension": ("it misses the word.", -1)}
                return {"Comprehension": (IGNORED["brief"], -1), "Readability": ("wordy.", 0)}
            case "json":
                try:
                    json.loads(answer)
                except ValueError:
                    return {"Comprehension": (IGNORED["json"], -1)}
                return {"Completeness": ("a value is wrong.", 0)}
            case _:
                return self._faults_in_list(body.rstrip(".").split(", "))

    def _faults_in_list(self, items: list[str]) -> dict[str, tuple[str, Mark]]:
        right = self._right().rstrip(".").split(", ")
        if items == list(self.items):
            return {"Comprehension": (IGNORED[self.family], -1)}
        if sorted(items) != sorted(right):
            return {"Completeness": ("an item is wrong.", 0)}
        if "Logical Correctness" in ASPECTS[self.family]:
            return {"Logical Correctness": ("an item is out of place.", 0)}
        return {"Comprehension": ("an item is out of place.", 0)}


def as_json(items: list[str]) -> str:
    """Write name, age and town as a JSON object."""
    return json.dumps({"name": items[0], "age": int(items[1]), "town": items[2]})


def _words(rng: random.Random, *counts: int) -> tuple[str, ...]:
    return tuple(rng.sample(WORDS, rng.choice(counts or (3, 4))))


def _numbers(rng: random.Random) -> tuple[str, ...]:
    return tuple(map(str, rng.sample(range(10, 40), 3)))


def _person(rng: random.Random) -> tuple[str, ...]:
    return rng.choice(PEOPLE), str(rng.randint(12, 79)), rng.choice(TOWNS)


def _word_and_number(rng: random.Random, low: int, high: int) -> tuple[str, ...]:
    return rng.choice(WORDS), str(rng.randint(low, high))


FAMILIES: dict[str, tuple[Draw, tuple[tuple[str, float], ...]]] = {
    "reverse": (_words, (
        ("Reverse the order: {words}.", 0.35), ("Write backwards: {words}.", 0.6),
    )),
    "numbers": (_numbers, (
        ("Sort these numbers: {words}.", 0.6), ("Smallest first, please: {words}.", 0.3),
    )),
    "alphabet": (_words, (
        ("Sort by letter: {words}.", 0.6), ("Put in alphabetical order: {words}.", 0.25),
    )),
    "count": (lambda rng: _words(rng, 2, 3, 4, 5, 6), (
        ("How many words are here: {words}?", 0.6), ("Count the words: {words}.", 0.3),
    )),
    "json": (_person, (
        ("Answer as JSON: {word} is {number} and lives in {town}.", 0.25),
        ("{word}, {number} years old, of {town}. Give me JSON.", 0.6),
    )),
    "identity": (_person, (
        ("I am {word}, {number}, from {town}. Who are you?", 0.3),
        ("My name is {word}, I am {number}, I live in {town}. And you?", 0.15),
        ("{word} here, {number}, of {town}. Are you human?", 0.55),
    )),
    "brief": (lambda rng: _word_and_number(rng, 7, 12), (
        ("In at most {number} words: what about {word}?", 0.3),
        ("Say something on {word} in {number} words or fewer.", 0.6),
    )),
    "repeat": (lambda rng: _word_and_number(rng, 4, 9), (
        ("Write {word} {number} times.", 0.3), ("Repeat {word}, {number} times.", 0.6),
    )),
    "capitals": (_words, (
        ("In capitals: {words}.", 0.35), ("Shout these words: {words}.", 0.6),
    )),
}  # fmt: skip
"""How each family draws its items, and its wordings with the share of careful demonstrations."""


def instruction(rng: random.Random, *, out: bool, family: str | None = None) -> Instruction:
    """Draw an instruction whose items are held out, or not."""
    while True:
        chosen = family or rng.choice(tuple(FAMILIES))
        draw, wordings = FAMILIES[chosen]
        wording, share = rng.choice(wordings)
        drawn = Instruction(chosen, wording, draw(rng), share)
        # A list that is already in order would teach nothing.
        same = drawn.family not in {"count", "json", "identity"} and (
            drawn.careful(rng) == drawn.careless(rng)
        )
        if not same and held_out(*drawn.items) == out:
            return drawn
