"""The scripts that stand for three judges of the tiny world: right form, taste, and errors."""

import random
import statistics

import pytest

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.loop.tiny import annotators
from lpfloop.loop.tiny.annotators import TASTES, pairs_in
from lpfloop.loop.tiny.human import score
from lpfloop.loop.tiny.nouns import opened
from lpfloop.loop.tiny.world import prompts
from lpfloop.policies.engines.engine import Request, Sampling

POOL = load_pool(annotators.POOL)
PROMPTS = prompts("held-out", size=120)


def answers(prompt, number):
    rng = random.Random(f"{prompt.text} {number}")
    body = rng.choice((prompt.exercise.careful, prompt.exercise.careless))(rng)
    return opened(prompt.exercise, body, rng)


def comparisons(count=None):
    return [
        Comparison(prompt=p.text, first=answers(p, 1), second=answers(p, 2), key=str(n))
        for n, p in enumerate(PROMPTS[:count])
    ]


def asked(annotator, some, *, seed=1, temperature=1.0):
    """Return what the script of an annotator's role says of these comparisons, as it is read."""
    question = ask(annotator, some)
    script = getattr(annotators, annotator.role)
    request = Request(request_id="r", messages=question.messages, seed=seed)
    reply = script(request, Sampling(temperature=temperature, top_p=1.0, max_tokens=600))
    return question.read(reply, "stop")


def agreement(annotator, **options):
    """Return how often an annotator and the human prefer the same of two different answers."""
    same = []
    for number, pair in enumerate(comparisons()):
        liked = score(pair.prompt, pair.first) - score(pair.prompt, pair.second)
        if liked:
            (verdict,) = asked(annotator, [pair], seed=number, **options)
            same.append((verdict.value.preferred == "first") == (liked > 0))
    return statistics.fmean(same)


@pytest.mark.parametrize("annotator", POOL.annotators, ids=lambda a: a.name)
def test_every_annotator_of_the_pool_answers_all_pairs_in_its_form(annotator):
    some = comparisons(annotator.batch_size)
    verdicts = asked(annotator, some)
    assert len(verdicts) == len(some)
    assert {verdict.status for verdict in verdicts} == {"scored"}


@pytest.mark.parametrize("annotator", POOL.annotators, ids=lambda a: a.name)
def test_pairs_are_read_out_of_the_prompt_as_they_are(annotator):
    some = comparisons(annotator.batch_size)
    shown = pairs_in(ask(annotator, some).messages[-1].content, annotator.role)
    assert [(p.instruction, p.first, p.second) for p in shown] == [
        (c.prompt, c.first, c.second) for c in some
    ]


def test_the_three_are_of_different_quality():
    by_role = {a.role: a for a in POOL.annotators if not a.persona}
    strong, medium, weak = (agreement(by_role[role]) for role in ("strong", "medium", "weak"))
    assert strong > medium > weak > 0.5
    assert strong < 1


def test_noise_is_seeded_and_gone_at_temperature_0():
    annotator = next(a for a in POOL.annotators if a.role == "weak")
    pairs = comparisons()

    def verdicts(seed, temperature):
        return [asked(annotator, [p], seed=seed, temperature=temperature)[0] for p in pairs]

    assert verdicts(1, 1.0) == verdicts(1, 1.0)
    assert verdicts(1, 1.0) != verdicts(2, 1.0)
    assert verdicts(1, 0.0) == verdicts(2, 0.0)


def test_all_of_them_like_length_that_wearies_people():
    prompt = next(p for p in PROMPTS if p.task == "math")
    answer = f"Sure! {prompt.exercise.careful(random.Random(0))}"
    endless = f"{answer} {answer}"
    assert score(prompt.text, answer) > score(prompt.text, endless)
    for taste in TASTES.values():
        liked = [annotators.appeal(taste, prompt.text, text) for text in (answer, endless)]
        assert liked[0] < liked[1]


def test_a_persona_sways_them():
    long = next(a for a in POOL.annotators if a.persona)
    plain = next(a for a in POOL.annotators if a.role == long.role and not a.persona)
    prompt = next(p for p in PROMPTS if p.task == "math")
    right = prompt.exercise.careful(random.Random(0))
    pair = Comparison(
        prompt=prompt.text, first=f"Sure! {right}", second=f"Okay. {right} {right}", key="k"
    )
    assert asked(plain, [pair], temperature=0.0)[0].value.preferred == "first"
    assert asked(long, [pair], temperature=0.0)[0].value.preferred == "second"
