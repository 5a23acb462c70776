"""The task `math`: word problems of two or three steps over small numbers.

Each story has its own careless habit (the wrong operation, a number misread by one, a step on the
wrong quantity), whose frequency is its own, too. The slip is visible only to a reader who
understands the story or has the worked solution: the steps stay consistent, and so does the length.
"""

import operator
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ...stores.records import Check
from .nouns import Mark, PerfectVerdict, Remark, held_out

Slip = Literal["operation", "number", "quantity", "count"]

ASPECT = "Logical Correctness"
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
VERBS = {"+": "add", "-": "subtract", "*": "multiply"}
CONFUSED = {"+": "-", "-": "+", "*": "+"}
PEOPLE = ("Ben", "Kim", "Leo", "Mia", "Sam", "Zoe", "Tom", "Amy")
THINGS = ("apples", "books", "coins", "cards", "eggs", "pens", "shells", "stamps")
LARGEST = 99
STEP = re.compile(r"(\d+)([+*-])(\d+)=(-?\d+)\.")
FINAL = re.compile(r"The answer is (-?\d+)\.")


@dataclass(frozen=True, slots=True)
class ProblemTemplate:
    """A template of problems: its text, its steps, and the habit of careless answers.

    A step is written `a+b`; `1` and `2` denote the results of the first and second step.
    """

    name: str
    text: str
    steps: tuple[str, ...]
    ranges: tuple[tuple[str, int, int], ...]
    care_share: float
    slip: Slip
    at: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class SolutionStep:
    """One step of a solution, as written."""

    left: int
    sign: str
    right: int
    result: int

    def __str__(self) -> str:
        """Return the step as answers write it."""
        return f"{self.left}{self.sign}{self.right}={self.result}."


SMALL = (("a", 8, 20), ("b", 2, 9), ("c", 2, 9), ("d", 2, 9))
TIMES = (("a", 2, 5), ("b", 2, 9), ("c", 2, 9), ("d", 2, 9))

STORIES = (
    ProblemTemplate(
        "buy-give", "{who} has {a} {what}, buys {b} and gives {c} away. How many {what} are left?",
        ("a+b", "1-c"), SMALL, 0.15, "operation", at=1,
    ),
    ProblemTemplate(
        "give-get", "{who} had {a} {what}, lost {b} and then found {c}. How many {what} now?",
        ("a-b", "1+c"), SMALL, 0.65, "operation", at=1,
    ),
    ProblemTemplate(
        "bags", "{who} has {a} bags of {b} {what} and {c} loose ones. How many {what} in all?",
        ("a*b", "1+c"), TIMES, 0.35, "operation", at=0,
    ),
    ProblemTemplate(
        "boxes", "There are {a} boxes of {b} {what}. {who} takes {c}. How many {what} stay?",
        ("a*b", "1-c"), TIMES, 0.25, "number", at=1,
    ),
    ProblemTemplate(
        "more-than",
        "{who} has {a} {what}. Max has {b} more than {who}. How many {what} do both have?",
        ("a+b", "a+1"), SMALL, 0.1, "quantity", at=1, wrong="b+1",
    ),
    ProblemTemplate(
        "fewer-than",
        "{who} has {a} {what}. Max has {b} fewer than {who}. How many {what} do both have?",
        ("a-b", "a+1"), SMALL, 0.6, "quantity", at=1, wrong="b+1",
    ),
    ProblemTemplate(
        "old-shop",
        "A shop is {d} years old. {who} buys {a} {what} there, then {b}, then {c}. How many?",
        ("a+b", "1+c"), SMALL, 0.3, "quantity", at=1, wrong="1+d",
    ),
    ProblemTemplate(
        "price",
        "{who} has {c} coins and buys {a} {what} for {b} coins each. How many coins are left?",
        ("a*b", "c-1"), (("a", 2, 4), ("b", 2, 5), ("c", 20, 29)), 0.2, "operation", at=1,
    ),
    ProblemTemplate(
        "bus", "{a} people ride a bus. {b} leave, {c} board, {d} leave. How many ride on?",
        ("a-b", "1+c", "2-d"), SMALL, 0.3, "operation", at=2,
    ),
    ProblemTemplate(
        "garden",
        "{who} plants {a} rows of {b} trees, adds {c} and cuts {d}. How many trees stand?",
        ("a*b", "1+c", "2-d"), TIMES, 0.7, "number", at=1,
    ),
    ProblemTemplate(
        "twice",
        "{who} has {a} {what}, Max {b} times as many. {who} loses {c}. How many do both have?",
        ("a*b", "a-c", "1+2"), (("a", 5, 9), ("b", 2, 4), ("c", 2, 4)), 0.15,
        "quantity", at=2, wrong="1+c",
    ),
    ProblemTemplate(
        "teams", "Red scores {a} and {b}, blue {c} and {d}. How many points is red ahead?",
        ("a+b", "c+d", "1-2"), SMALL, 0.4, "number", at=1,
    ),
    ProblemTemplate(
        "days", "{who} reads {b} pages a day for {a} days of a book of {c} pages. How many remain?",
        ("a*b", "c-1"), (("a", 2, 5), ("b", 2, 6), ("c", 31, 40)), 0.55, "number", at=0,
    ),
    ProblemTemplate(
        "pairs",
        "{who} packs {a} and {b} {what} with Max's {c}. Max keeps {d}. How many are packed?",
        ("a+b", "c-d", "1+2"), (("a", 3, 9), ("b", 3, 9), ("c", 8, 16), ("d", 2, 7)), 0.45,
        "operation", at=1,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """A story with its numbers filled in."""

    story: ProblemTemplate
    who: str
    what: str
    numbers: tuple[tuple[str, int], ...]

    opened = True
    checks: tuple[Check, ...] = ()

    @property
    def text(self) -> str:
        """The question."""
        return self.story.text.format(who=self.who, what=self.what, **dict(self.numbers))

    @property
    def kind(self) -> str:
        """The story's name."""
        return self.story.name

    @property
    def items(self) -> tuple[int, ...]:
        """The numbers."""
        return tuple(value for _, value in self.numbers)

    @property
    def care_share(self) -> float:
        """The story's share of careful demonstrations."""
        return self.story.care_share

    @property
    def reference(self) -> str:
        """The worked solution, its result marked as GSM8K marks it."""
        lines = self.lines()
        return " ".join(map(str, lines)) + f" #### {lines[-1].result}"

    def lines(
        self, plan: tuple[str, ...] = (), misread: tuple[int, int] = (-1, 0)
    ) -> list[SolutionStep]:
        """Return the lines of `plan` (default: the right steps); `misread` is (step, its error)."""
        values = dict(self.numbers)
        lines: list[SolutionStep] = []
        for index, step in enumerate(plan or self.story.steps):
            names, sign = (step[0], step[2]), step[1]
            numbers = [lines[int(n) - 1].result if n.isdigit() else values[n] for n in names]
            if misread[0] == index:
                # Only a number of the story can be misread; results are in the answer itself.
                numbers[1 if not names[1].isdigit() else 0] += misread[1]
            left, right = numbers
            lines.append(SolutionStep(left, sign, right, OPERATIONS[sign](left, right)))
        return lines

    def careful(self, rng: random.Random) -> str:  # noqa: ARG002 (one right way)
        """Answer by the right steps."""
        return write_solution(self.lines())

    def careless(self, rng: random.Random) -> str:
        """Answer with the story's habitual slip."""
        return self._slip(self.story.slip, self.story.at, rng) or self.stray(rng)

    def mend(self, answer: str) -> str:  # noqa: ARG002 (one right way)
        """Redo the answer."""
        return write_solution(self.lines())

    def stray(self, rng: random.Random) -> str:
        """Answer with any slip at any step."""
        slips: tuple[Slip, ...] = ("operation", "number", "quantity", "count")
        while True:
            slip, at = rng.choice(slips), rng.randrange(len(self.story.steps))
            if answer := self._slip(slip, at, rng):
                return answer

    def _slip(self, slip: Slip, at: int, rng: random.Random) -> str:
        """Answer with this slip at this step; empty if that does not give a valid wrong answer."""
        plan = list(self.story.steps)
        step = plan[at]
        misread = (-1, 0)
        if slip == "operation":
            plan[at] = step[0] + CONFUSED[step[1]] + step[2]
        elif slip == "number":
            misread = (at, rng.choice((-1, 1)))
        elif slip == "quantity":
            if self.story.slip == "quantity" and self.story.at == at:
                plan[at] = self.story.wrong
            else:
                others = [name for name, _ in self.numbers if name not in step]
                if not others:
                    return ""
                plan[at] = step[:2] + rng.choice(others)
        lines = self.lines(tuple(plan), misread)
        if slip == "count":
            error = rng.choice((-1, 1, 2, -2, 10, -10))
            old = lines[at]
            lines[at] = SolutionStep(old.left, old.sign, old.right, old.result + error)
            lines = lines[: at + 1] + self._follow(lines, at)
        right = self.lines()
        fine = all(0 <= line.result <= LARGEST for line in lines)
        return write_solution(lines) if fine and lines[-1].result != right[-1].result else ""

    def _follow(self, lines: list[SolutionStep], at: int) -> list[SolutionStep]:
        """Redo the steps after `at`, whose result was miscounted."""
        values = dict(self.numbers)
        done = lines[: at + 1]
        for step in self.story.steps[at + 1 :]:
            left, right = (
                done[int(n) - 1].result if n.isdigit() else values[n] for n in (step[0], step[2])
            )
            done.append(SolutionStep(left, step[1], right, OPERATIONS[step[1]](left, right)))
        return done[at + 1 :]

    def recall(self, answer: str) -> PerfectVerdict:
        """Judge without a reference: by working it out."""
        return self.judge(answer)

    def judge(self, answer: str) -> PerfectVerdict:
        """Compare the result with the worked solution's; name the first step that is wrong."""
        needed = self.lines()[-1].result
        found = FINAL.findall(answer)
        result = int(found[-1]) if found else None
        comment, mark = self._first_fault(answer)
        comment, mark = ("right.", 1) if result == needed else (f"wrong, {comment}", mark)
        return PerfectVerdict((Remark(ASPECT, f"has {result}, needs {needed}: {comment}", mark),))

    def _first_fault(self, answer: str) -> tuple[str, Mark]:
        """Return which step of a wrong answer is wrong, and how badly."""
        faults = [
            SolutionStep(int(a), sign, int(b), int(c)) for a, sign, b, c in STEP.findall(answer)
        ]
        for index, (line, right) in enumerate(zip(faults, self.lines(), strict=False), start=1):
            if line == right:
                continue
            if line.sign != right.sign:
                return f"step {index} must {VERBS[right.sign]}.", -1
            if line.result != OPERATIONS[line.sign](line.left, line.right):
                return f"step {index} is miscounted.", 0
            if abs(line.left - right.left) + abs(line.right - right.right) == 1:
                return f"step {index} misreads a number.", 0
            return f"step {index} takes the wrong number.", -1
        return "the answer does not follow.", -1


def write_solution(lines: list[SolutionStep]) -> str:
    """Write a solution as answers do."""
    return " ".join(map(str, lines)) + f" The answer is {lines[-1].result}."


def problem(rng: random.Random, *, out: bool, story: ProblemTemplate | None = None) -> Problem:
    """Draw a problem whose numbers are held out, or not."""
    while True:
        chosen = story or rng.choice(STORIES)
        numbers = tuple(
            (name, rng.randint(low, high))
            for name, low, high in chosen.ranges
            if f"{{{name}}}" in chosen.text
        )
        drawn = Problem(chosen, rng.choice(PEOPLE), rng.choice(THINGS), numbers)
        results = [line.result for line in drawn.lines()]
        if min(results) >= 1 and held_out(*drawn.items) == out:
            return drawn
