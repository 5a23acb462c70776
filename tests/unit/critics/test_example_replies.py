"""Every question makes example replies that its parser accepts; fake judges return them."""

from dataclasses import replace

import rows
from forgeries import CRITIC, GRADER, POOL, REVIEWERS

from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.grading.grade_reply import SCALES
from lpfloop.critics.guard import BARE, GuardKey
from lpfloop.critics.judge import Question
from lpfloop.critics.status import WAS_READ
from lpfloop.stores.records import Prompt

ANSWERS = ("It is 4, and here is why.", "Five.", "I do not know.", "4")


def prompt(task: str) -> Prompt:
    return replace(rows.PROMPT, task=task)


def questions(key: GuardKey) -> dict[str, Question]:
    """One question of each kind of judge."""
    pairs = [
        Comparison(prompt="What is 2 + 2?", first=a, second=b, key=f"{a}{b}", order=order)
        for a, b, order in zip(ANSWERS, ANSWERS[1:], ("as_given", "swapped") * 2, strict=False)
    ]
    return {
        **{f"critic:{t}": CRITIC.ask(prompt(t), ANSWERS[0], key) for t in ("math", "facts", "any")},
        **{
            f"grader:{aspect}": GRADER.ask(
                aspect, prompt("any"), ANSWERS[: 1 if aspect == "overall" else 4], None, key
            )
            for aspect in SCALES
        },
        **{f"reviewer:{n}": one.ask("What is 2 + 2?", key) for n, one in enumerate(REVIEWERS)},
        **{f"annotator:{a.name}": ask(a, pairs[: a.batch_size], key) for a in POOL.annotators},
    }


def test_every_example_is_read():
    for key in [BARE, GuardKey.of(7, "ask-1")]:
        for name, question in questions(key).items():
            for seed in range(20):
                for said in (question.example(seed), question.example(seed, "and so on " * 400)):
                    read = question.read(said, "stop")
                    assert {reading.status for reading in read} <= WAS_READ, name
