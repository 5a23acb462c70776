"""The task `facts`: short biographies of invented persons.

Facts about a person follow from the two names: the first name decides the places, the surname
trade, prize and teacher. So a small model can learn them, and answer for persons it never saw. In
addition to the facts there is hearsay: for each name and topic one claim that is plausible, often
repeated, and false for this person (though true of others). Careless demonstrations repeat hearsay.
Memory mistakes some of it, always for the same names, for facts. Only the abstract shows the error.
"""

import random
from dataclasses import dataclass, replace

from ...stores.records import Check
from .nouns import Mark, PerfectVerdict, Remark, held_out

ASPECT = "Factuality"
FIRST_NAMES = (
    "Ada", "Bruno", "Clara", "David", "Edith", "Felix", "Greta", "Hugo", "Irene", "Jonas",
    "Karla", "Louis", "Maria", "Nora", "Oscar", "Paula", "Ralph", "Sofia", "Theo", "Vera",
    "Walter", "Xenia",
)  # fmt: skip
SURNAMES = (
    "Adler", "Brook", "Castle", "Drake", "Ellis", "Frost", "Gale", "Hill", "Ivers", "Joyce",
    "Knight", "Lane", "Moss", "North", "Olsen", "Penn", "Quill", "Reed", "Stone", "Thorn", "Vale",
    "Wood",
)  # fmt: skip
PLACES = ("Avon", "Bern", "Cadiz", "Derby", "Essen", "Faro", "Genoa", "Hague")
TRADES = ("painter", "doctor", "singer", "baker", "pilot", "judge", "writer", "farmer")
PRIZES = ("Silver Cup", "Golden Pen", "Red Ribbon", "Blue Star", "Iron Ring", "Green Leaf")
TEACHERS = ("Klee", "Bohr", "Gauss", "Verdi", "Darwin", "Curie")
TOPICS = ("trade", "birthplace", "prize", "teacher", "home")
POOL = ("prize", "teacher", "home")
VALUES: dict[str, tuple[str, ...]] = {
    "trade": TRADES,
    "birthplace": PLACES,
    "prize": PRIZES,
    "teacher": TEACHERS,
    "home": PLACES,
}
SENTENCES = {
    "trade": "{first} {last} was a {value}.",
    "birthplace": "{first} was born in {value}.",
    "prize": "{last} won the {value}.",
    "teacher": "{last} studied with {value}.",
    "home": "{first} lived in {value}.",
}
BY_FIRST_NAME = ("birthplace", "home")
QUESTIONS = ("Tell me about {first} {last}.", "Who was {first} {last}?", "Describe {first} {last}.")
HABIT, RARELY = 0.9, 0.25
HABIT_SHARE = 0.6
LORE_SEED = 20
MISREMEMBERED = 0.2
"""The share of (name, topic) of which memory holds the hearsay, all of it often repeated."""
RETOLD = 0.5
"""The share of claims that a retold abstract replaces."""


@dataclass(frozen=True, slots=True)
class Lore:
    """The facts, the hearsay and the remembered claims, by (name, topic)."""

    truth: dict[tuple[str, str], str]
    hearsay: dict[tuple[str, str], str]
    gossip: dict[tuple[str, str], float]
    care_share: dict[str, float]
    memory: dict[tuple[str, str], str]


def _lore() -> Lore:
    """Draw the tables; they are the same for every seed."""
    rng = random.Random(LORE_SEED)
    truth: dict[tuple[str, str], str] = {}
    hearsay: dict[tuple[str, str], str] = {}
    gossip: dict[tuple[str, str], float] = {}
    for topic in TOPICS:
        for index, name in enumerate(FIRST_NAMES if topic in BY_FIRST_NAME else SURNAMES):
            values = VALUES[topic]
            # Every value is true of about equally many names.
            truth[name, topic] = values[(index * 5 + len(topic)) % len(values)]
            hearsay[name, topic] = rng.choice([v for v in values if v != truth[name, topic]])
            gossip[name, topic] = HABIT if rng.random() < HABIT_SHARE else RARELY
    shares = [0.1 + 0.5 * index / (len(SURNAMES) - 1) for index in range(len(SURNAMES))]
    rng.shuffle(shares)
    habits = [key for key, often in gossip.items() if often == HABIT]
    believed = rng.sample(habits, round(MISREMEMBERED * len(truth)))
    memory = truth | {key: hearsay[key] for key in believed}
    return Lore(truth, hearsay, gossip, dict(zip(SURNAMES, shares, strict=True)), memory)


LORE = _lore()


@dataclass(frozen=True, slots=True)
class Biography:
    """A question about one person.

    `stated` has the topics on which the abstract differs from the world's facts.
    """

    first: str
    last: str
    question: str
    stated: tuple[tuple[str, str], ...] = ()

    opened = True
    checks: tuple[Check, ...] = ()

    @property
    def text(self) -> str:
        """The question."""
        return self.question.format(first=self.first, last=self.last)

    @property
    def kind(self) -> str:
        """The person's true trade."""
        return LORE.truth[self.last, "trade"]

    @property
    def items(self) -> tuple[str, str]:
        """The person."""
        return self.first, self.last

    @property
    def care_share(self) -> float:
        """The surname's share of careful demonstrations."""
        return LORE.care_share[self.last]

    @property
    def reference(self) -> str:
        """The abstract: one true sentence a topic."""
        return " ".join(self.sentence(topic) for topic in TOPICS)

    def name(self, topic: str) -> str:
        """The part of the name that decides the topic."""
        return self.first if topic in BY_FIRST_NAME else self.last

    def truth(self, topic: str) -> str:
        """The value of a topic that is true by the abstract."""
        return dict(self.stated).get(topic) or LORE.truth[self.name(topic), topic]

    def with_other_abstract(self, rng: random.Random) -> "Biography":
        """Return the question with an abstract of other claims, so that a judge must read it."""
        stated = tuple((t, rng.choice(VALUES[t])) for t in TOPICS if rng.random() < RETOLD)
        return replace(self, stated=stated)

    def sentence(self, topic: str, value: str | None = None) -> str:
        """Return the sentence on a topic; by default the true one."""
        value = value or self.truth(topic)
        return SENTENCES[topic].format(first=self.first, last=self.last, value=value)

    def topics(self, rng: random.Random) -> list[str]:
        """Choose the topics: trade and birthplace, and two of the others."""
        chosen = rng.sample(POOL, 2)
        return [topic for topic in TOPICS if topic not in POOL or topic in chosen]

    def careful(self, rng: random.Random) -> str:
        """State the facts."""
        return " ".join(self.sentence(topic) for topic in self.topics(rng))

    def careless(self, rng: random.Random) -> str:
        """Repeat hearsay, on topics by its frequency."""
        topics = self.topics(rng)
        false: list[str] = []
        while not false:
            false = [t for t in topics if rng.random() < LORE.gossip[self.name(t), t]]
        return " ".join(
            self.sentence(t, LORE.hearsay[self.name(t), t] if t in false else None) for t in topics
        )

    def stray(self, rng: random.Random) -> str:
        """Make up one or two claims."""
        topics = self.topics(rng)
        false = rng.sample(topics, rng.choice((1, 1, 2)))
        return " ".join(
            self.sentence(t, self._other(t, rng) if t in false else None) for t in topics
        )

    def mend(self, answer: str) -> str:
        """State the facts on the answer's topics."""
        mended = [
            topic
            for topic in TOPICS
            if any(self.sentence(topic, value) in answer for value in VALUES[topic])
        ]
        return " ".join(self.sentence(topic) for topic in mended)

    def _other(self, topic: str, rng: random.Random) -> str:
        """Draw a value that is not true of this person."""
        truth = self.truth(topic)
        return rng.choice([value for value in VALUES[topic] if value != truth])

    def judge(self, answer: str) -> PerfectVerdict:
        """Compare each claim with the abstract, topic by topic."""
        return self._compare(answer, {t: self.truth(t) for t in TOPICS})

    def recall(self, answer: str) -> PerfectVerdict:
        """Judge from memory, in which some hearsay passes for fact."""
        return self._compare(answer, {t: LORE.memory[self.name(t), t] for t in TOPICS})

    def _compare(self, answer: str, believed: dict[str, str]) -> PerfectVerdict:
        """Compare each claim with the believed facts about the person."""
        remarks: list[str] = []
        wrong = 0
        for topic in TOPICS:
            truth = believed[topic]
            for value in VALUES[topic]:
                if self.sentence(topic, value) in answer:
                    wrong += value != truth
                    verdict = "right" if value == truth else "wrong"
                    remarks.append(f"{value} for {truth} {verdict}")
        abstract = " ".join(self.sentence(t, value) for t, value in believed.items())
        if not remarks or (wrong == 0 and _support(answer, abstract) < 1):
            return PerfectVerdict((Remark(ASPECT, "this is someone else.", -1),))
        mark: Mark = 1 if wrong == 0 else 0 if wrong == 1 else -1
        return PerfectVerdict((Remark(ASPECT, ", ".join(remarks) + ".", mark),))

    def support(self, answer: str) -> float:
        """Return the share of the answer's sentences that are in the abstract."""
        return _support(answer, self.reference)


def _support(answer: str, abstract: str) -> float:
    supported = set(sentences(abstract))
    statements = [s for s in sentences(answer) if len(s.split()) > 1]
    return sum(s in supported for s in statements) / len(statements) if statements else 0.0


def sentences(text: str) -> list[str]:
    """Split into sentences, each with its full stop; openers come out as single words."""
    text = text.replace("!", ".").replace(":", ".")
    return [f"{part.strip()}." for part in text.split(".") if part.strip()]


def biographies() -> list[Biography]:
    """Return every question about every person."""
    return [
        Biography(first, last, question)
        for first in FIRST_NAMES
        for last in SURNAMES
        for question in QUESTIONS
    ]


def biography(rng: random.Random, *, out: bool) -> Biography:
    """Draw a question about a person who is held out, or not."""
    while True:
        first, last = rng.choice(FIRST_NAMES), rng.choice(SURNAMES)
        if held_out(first, last) == out:
            return Biography(first, last, rng.choice(QUESTIONS))
