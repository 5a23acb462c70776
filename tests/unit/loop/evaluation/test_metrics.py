"""Means, standard errors and counts."""

import math
from dataclasses import replace

from rows import CANDIDATE, CRITIQUE, SCORE

from lpfloop.critics.verify import Verdict
from lpfloop.loop.evaluation.metrics import MeasuredAnswers, prompt_scores, summarise
from lpfloop.stores.records import AspectRating


def test_standard_error():
    values = (1.0, 0.0, 0.0, 1.0, 1.0)
    scores = [replace(SCORE, value=v, prompt_id=f"p{n}") for n, v in enumerate(values)]
    (number,) = summarise(scores)
    assert number.value == 0.6
    assert number.n == 5
    assert math.isclose(number.stderr, math.sqrt(0.3 / 5))


def test_error_by_clusters():
    values = {"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}
    once = [replace(SCORE, value=v, prompt_id=name) for name, v in values.items()]
    thrice = [replace(s, prompt_id=f"{s.prompt_id}{n}") for s in once for n in range(3)]
    clusters = {score.prompt_id: score.prompt_id[0] for score in thrice}
    (number,), (together,) = summarise(once), summarise(thrice, clusters)
    assert (together.value, together.n) == (number.value, 12)
    assert math.isclose(together.stderr, number.stderr)
    assert summarise(thrice)[0].stderr < 0.6 * number.stderr


def measured(critique, rating):
    verdict = Verdict(metrics=(("math_accuracy", 1.0),), rating=rating, reason="right")
    return {
        s.metric: s.value
        for s in prompt_scores(
            MeasuredAnswers(
                benchmark="held-out",
                checkpoint_id="c",
                candidates=[CANDIDATE],
                verdicts=[verdict],
                critiques={CANDIDATE.candidate_id: critique},
            )
        )
    }


def test_scores_of_an_answer():
    critique = replace(
        CRITIQUE, aspects=(AspectRating(name="Logical Correctness", rating=0, comment=""),)
    )
    assert measured(critique, rating=1) == {
        "math_accuracy": 1.0,
        "mean_length": 2.0,
        "rating:Logical Correctness": 0.0,
        "critic_agreement": 0.0,
    }
    assert measured(critique, rating=-1)["critic_agreement"] == 1.0


def test_unscored_critique_counts_nowhere():
    unscored = replace(CRITIQUE, status="no_dictionary", aspects=())
    assert set(measured(unscored, rating=1)) == {"math_accuracy", "mean_length"}
