"""A policy learns the critic's critiques, and then serves as a critic."""

from dataclasses import replace

from rows import CANDIDATE, CRITIQUE

from lpfloop.configs.load import load_config
from lpfloop.critics.feedback import FeedbackCritic
from lpfloop.loop.data.filter_counts import KEPT
from lpfloop.loop.stages.lessons import UNREADABLE, critique_lessons
from lpfloop.stores.records import AspectRating, Candidate, Critique, Message, Prompt

CRITIC = FeedbackCritic.from_config(load_config("tiny", "rlrf", (), {}).critic)
PROMPT = Prompt(
    prompt_id="p",
    task="math",
    split="train",
    messages=(Message(role="user", content="1 + 1?"),),
    reference=None,
    checks=(),
    source="tests",
)


def draft(name: str) -> Candidate:
    return replace(CANDIDATE, candidate_id=name, prompt_id="p", text=f"Okay. It is {name}.")


def critique(about: str, text: str, status: str = "scored") -> Critique:
    rating = 1 if status == "scored" else None
    return replace(
        CRITIQUE,
        critique_id=f"of {about}",
        candidate_id=about,
        prompt_id="p",
        aspects=(AspectRating(name="Logical Correctness", rating=rating, comment=""),),
        text=text,
        status=status,
    )


def test_lesson_prompt_equals_critic_prompt():
    drafts = [draft(name) for name in "abcd"]
    said = 'Logical Correctness: fine. 1\n{"Logical Correctness": 1}'
    given = [
        critique("a", said),
        critique("b", "hm", status="no_dictionary"),
        critique("c", "All is well."),
        critique("d", said),
    ]
    made = critique_lessons(CRITIC, {"p": PROMPT}, drafts, given, 1)
    assert made.fates == {KEPT: ["a", "d"], "no_dictionary": ["b"], UNREADABLE: ["c"]}
    first, second = made.rows
    assert first.prompt == CRITIC.ask(PROMPT, "Okay. It is a.").messages
    assert first.completion == (Message(role="assistant", content=said),)
    assert (first.rank, second.rank) == (0, 1)
    assert first.ratings == (1,)
    assert first.demonstration_id != second.demonstration_id
