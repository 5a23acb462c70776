"""The scripted grader of the tiny world answers in the right form."""

import random
from dataclasses import replace

from rows import PROMPT

from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grade_reply import SCALES
from lpfloop.critics.grading.grader import GRADING_TEMPLATES, Grader
from lpfloop.loop.tiny.exercises import add_opener
from lpfloop.loop.tiny.graders import aspect_of, grader
from lpfloop.loop.tiny.world import prompts
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.records import Message

SAMPLING = Sampling(temperature=0.0, top_p=0.6, max_tokens=1024)


def verdicts(graders, aspect, exercise):
    rng, kinds = random.Random(exercise.text), exercise.exercise
    count = 1 if aspect == "overall" else 4
    bodies = [rng.choice((kinds.careful, kinds.careless))(rng) for _ in range(count)]
    texts = [add_opener(kinds, body, rng) for body in bodies]
    turn = Message(role="user", content=exercise.text)
    about = {"task": exercise.task, "reference": exercise.reference, "messages": (turn,)}
    question = graders.ask(aspect, replace(PROMPT, **about), texts, "Be brief.")
    assert aspect_of(question.messages[-1].content) == aspect
    request = Request(request_id="r", messages=question.messages, seed=7)
    return question.read(grader(request, SAMPLING), "stop")


def test_question_is_answered_in_form():
    for name in GRADING_TEMPLATES.shipped:
        graders = Grader.from_config(GradingConfig(templates=name))
        for aspect in SCALES:
            world = prompts("held-out", size=120)[:20]
            statuses = {v.status for each in world for v in verdicts(graders, aspect, each)}
            assert statuses == {"scored"} | ({"not_applicable"} if aspect == "honesty" else set())
