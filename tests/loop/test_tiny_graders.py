"""The script that stands for the grader of the tiny world: right form, taste, and errors."""

import random
import statistics
from functools import cache
from itertools import combinations

import pytest

from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.graded_aspects import FINE_GRAINED, SCALES
from lpfloop.critics.grading.grader import GRADING_TEMPLATES, Grader
from lpfloop.critics.grading.score_reply import SCORE_FORMS
from lpfloop.loop.tiny.graders import aspect_of, grader
from lpfloop.loop.tiny.human import score
from lpfloop.loop.tiny.nouns import opened
from lpfloop.loop.tiny.world import prompts
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.records import Message, Prompt

SAMPLING = Sampling(temperature=0.0, top_p=0.6, max_tokens=1024)
WORLD = prompts("held-out", size=240)
GRADERS = {
    name: Grader.from_config(GradingConfig(templates=name)) for name in GRADING_TEMPLATES.shipped
}


def prompt_of(exercise):
    return Prompt(
        prompt_id="p",
        task=exercise.task,
        split="train",
        messages=(Message(role="user", content=exercise.text),),
        reference=exercise.reference,
        checks=(),
        source="tiny",
    )


def answers(exercise, count=4):
    rng = random.Random(exercise.text)
    body = exercise.exercise.careful, exercise.exercise.careless
    return [opened(exercise.exercise, rng.choice(body)(rng), rng) for _ in range(count)]


def verdicts(name, aspect, exercise, texts, seed):
    question = GRADERS[name].ask(aspect, prompt_of(exercise), texts, "Be brief.")
    assert aspect_of(question.messages[-1].content) == aspect
    request = Request(request_id="r", messages=question.messages, seed=seed)
    return question.read(grader(request, SAMPLING), "stop")


@pytest.mark.parametrize("form", SCORE_FORMS)
def test_an_overall_score_is_the_same_in_every_form(form):
    exercise = WORLD[0]
    (text,) = answers(exercise, 1)
    asked = Grader.from_config(GradingConfig(templates="tiny", score_form=form))
    question = asked.ask("overall", prompt_of(exercise), [text], "Be brief.")
    request = Request(request_id="r", messages=question.messages, seed=7)
    (reading,) = question.read(grader(request, SAMPLING), "stop")
    assert reading.value.rating == rating("overall", exercise, text, 7)


def rating(aspect, exercise, text, seed):
    (reading,) = verdicts("tiny", aspect, exercise, [text], seed)
    return reading.value.rating


@pytest.mark.parametrize("name", GRADING_TEMPLATES.shipped)
@pytest.mark.parametrize("aspect", SCALES)
def test_every_question_is_answered_in_its_form(name, aspect):
    statuses = {
        verdict.status
        for exercise in WORLD[:30]
        for texts in [answers(exercise, 1 if aspect == "overall" else 4)]
        for verdict in verdicts(name, aspect, exercise, texts, 7)
    }
    assert statuses == {"scored"} | ({"not_applicable"} if aspect == "honesty" else set())


def test_the_same_answer_gets_the_same_rating_and_errors_are_seeded():
    exercise = WORLD[0]
    (text,) = answers(exercise, 1)
    first, second = verdicts("tiny", "helpfulness", exercise, [text, text], 1)
    assert first == second
    drawn = {rating("overall", exercise, text, seed) for seed in range(20)}
    assert len(drawn) > 3


@cache
def agreement():
    """Return how often the mean of four aspects, and the overall score, order as the human does."""
    right = {"fine": [], "overall": []}
    for seed, exercise in enumerate(WORLD):
        texts = answers(exercise)
        by_aspect = [verdicts("tiny", a, exercise, texts, seed) for a in FINE_GRAINED]
        means = [
            statistics.fmean(v.value.rating for v in said if v.value.rating is not None)
            for said in zip(*by_aspect, strict=True)
        ]
        overall = [rating("overall", exercise, t, seed) for t in texts]
        liked = [score(exercise.text, text) for text in texts]
        for i, j in combinations(range(len(texts)), 2):
            if liked[i] != liked[j]:
                for kind, scores in (("fine", means), ("overall", overall)):
                    tied = scores[i] == scores[j]
                    same = (scores[i] > scores[j]) == (liked[i] > liked[j])
                    right[kind].append(0.5 if tied else float(same))
    return {kind: statistics.fmean(found) for kind, found in right.items()}


def test_grades_follow_the_hidden_taste_with_errors():
    assert 0.75 < agreement()["overall"] < 0.97
    assert 0.75 < agreement()["fine"] < 0.97


def test_the_mean_of_four_independent_errors_is_smaller_than_one():
    assert agreement()["fine"] > agreement()["overall"] + 0.03


def test_a_text_that_is_no_question_is_refused():
    with pytest.raises(ValueError, match="not a question of a shipped set"):
        aspect_of("Hello?")
