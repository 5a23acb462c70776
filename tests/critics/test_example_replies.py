"""Every question gives replies that it would read itself: what a judge stands in for is told so."""

import pytest
from forgeries import CRITIC, GRADER, POOL, REVIEWERS

from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.grading.graded_aspects import SCALES
from lpfloop.critics.guard import BARE, GuardKey
from lpfloop.critics.judge import WAS_READ, Question, user_message
from lpfloop.stores.records import Prompt

ANSWERS = ("It is 4, and here is why.", "Five.", "I do not know.", "4")


def prompt(task: str) -> Prompt:
    return Prompt(
        prompt_id="p",
        task=task,
        split="train",
        messages=user_message("What is 2 + 2?"),
        reference="4",
        checks=(),
        source="here",
    )


def questions(key: GuardKey) -> dict[str, Question]:
    """One question of each kind that a judge is asked."""
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


@pytest.mark.parametrize("key", [BARE, GuardKey.of(7, "ask-1")], ids=["bare", "guarded"])
def test_every_example_is_read(key: GuardKey):
    for name, question in questions(key).items():
        for seed in range(20):
            for said in (question.example(seed), question.example(seed, "and so on " * 400)):
                read = question.read(said, "stop")
                assert {reading.status for reading in read} <= WAS_READ, name


def test_examples_differ_by_their_seed_alone_so_that_pairs_come_about():
    for name, question in questions(BARE).items():
        replies = [question.example(seed) for seed in range(20)]
        assert replies == [question.example(seed) for seed in range(20)]
        # All reviews without a class keep their prompt: what is filtered out cannot be foreseen.
        assert len({*replies}) > 1 or name == "reviewer:0"
