"""The verifier agrees with published labels, and its quick comparison with math-verify."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import PROMPT

from lpfloop.critics.feedback import RatedAspects
from lpfloop.critics.judge import Question
from lpfloop.critics.math_answers import final_answer
from lpfloop.critics.math_numbers import quick_equal
from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Check

TASK_ASPECTS = {"math": "Logical Correctness", "facts": "Factuality"}


def asked(task, reference=None, *checks):
    checks = tuple(Check(kind=kind, argument=argument) for kind, argument in checks)
    return replace(PROMPT, task=task, reference=reference, checks=checks)


@pytest.fixture(scope="module")
def verifier():
    with Verifier() as shared:
        yield shared
        assert not shared.pool_started


def right(verifier, items):
    return [dict(v.metrics)["math_accuracy"] == 1 for v in verifier.verify(items)]


def test_the_last_mark_gives_the_final_answer(subtests):
    for text, final in [
        ("2+2=4.\n#### 4", "4"),
        ("So \\boxed{\\frac{1}{2}} it is.", "\\frac{1}{2}"),
        ("The answer is 18.", "18"),
        ("The answer is 3. Wait. The Answer is: **18 apples**.", "18 apples"),
        ("Thus it holds.\nA: 1,234", "1,234"),
        ("The answer is \\boxed{7}.", "7"),
        ("The answer is $x+1$.", "x+1"),
        ("p - q", "p - q"),
    ]:
        with subtests.test(text=text):
            assert final_answer(text).text == final
            assert final_answer(text).marked


def test_plain_numbers_without_process():
    with Verifier() as fresh:
        items = [
            (asked("math", "#### 7"), f"1+{n}={n + 1}. The answer is {n + 1}.") for n in range(99)
        ]
        assert sum(right(fresh, items)) == 1
        assert not fresh.pool_started


NUMBERS = st.one_of(
    st.integers(-2000, 2000).map(str),
    st.integers(-(10**9), 10**9).map(lambda n: f"{n:,}"),
    st.decimals(-10_000, 10_000, places=2, allow_nan=False).map(str),
    st.decimals(-2, 2, places=6, allow_nan=False).map(lambda d: f"{d:f}"),
    st.integers(0, 10**20).map(str),
    st.from_regex(r"-?[0-9]{1,3}(,[0-9]{1,3}){0,2}(\.[0-9]{1,3})?", fullmatch=True),
)
FRAMES = st.sampled_from(
    [
        "The answer is {}.",
        "The answer is ${}.",
        "1+1=2. The answer is {}.",
        "#### {}",
        "A: {}",
        "\\boxed{{{}}}",
        "She has {} left.",
        "18+4=22. 22-3={}.",
        "{}",
        "The answer is {}%.",
        "x = {}",
        "3/{}",
        "1 {}",
    ]
)


def _percents(text):
    return "%" in text or "percent" in text


@settings(max_examples=12)
@given(gold=NUMBERS, given_number=NUMBERS, same=st.booleans(), frames=st.tuples(FRAMES, FRAMES))
def test_quick_comparison_and_math_verify(gold, given_number, same, frames):
    math_verify = pytest.importorskip("math_verify")
    reference = frames[0].format(gold)
    answer = frames[1].format(gold if same else given_number)
    finals = final_answer(reference), final_answer(answer)
    quick = quick_equal(*finals)
    if finals[0].text == finals[1].text and finals[0].marked and finals[1].marked:
        assert quick is True
    elif quick is not None and _percents(reference) == _percents(answer):
        # If only one side is a percentage, the reference decides, and not math-verify.
        parsed = [math_verify.parse(text) for text in (reference, answer)]
        # math-verify cannot parse -01, so it cannot contradict.
        assert quick == math_verify.verify(*parsed) or not any(parsed)


def test_gsm8k_references(shared_rows):
    rows = shared_rows("gsm8k_train_first4000.jsonl")[::4]
    with Verifier() as fresh:
        assert all(right(fresh, [(asked("math", r["answer"]), r["answer"]) for r in rows]))
        assert not fresh.pool_started


def test_checks_give_the_metrics_that_apply(verifier):
    prompt = asked("general", None, ("json_valid", ""), ("self_identifies", "Al"))
    both, one, none = verifier.verify([(prompt, t) for t in ('{"I": "Al"}', "I am Al", "Hi")])
    assert dict(both.metrics) == {"general_fulfilled": 1, "json_valid": 1, "self_identified": 1}
    assert dict(one.metrics) == {"general_fulfilled": 0, "json_valid": 0, "self_identified": 1}
    assert [v.rating for v in (both, one, none)] == [1, 0, -1]
    (plain,) = verifier.verify([(asked("general", None, ("equals", "a")), "a")])
    assert plain.metrics == (("general_fulfilled", 1.0),)


def test_critic_rates_math_and_checks(verifier):
    """Math with checks has the task's aspect and one for each check; equal kinds get numbers."""
    prompt = asked("math", "#### 4", ("contains", "so"), ("contains", "then"))
    (verdict,) = verifier.verify([(prompt, "so #### 4")])
    rated = VerifierCritic(Verifier(), TASK_ASPECTS).read(prompt, verdict).value
    assert [(a.name, a.rating) for a in rated] == [
        ("Logical Correctness", 1), ("contains", 1), ("contains 2", -1),
    ]  # fmt: skip


def test_critic_rates_the_tasks_aspect(verifier, subtests):
    for prompt, answer, aspect, rating in [
        (asked("math", "#### 4"), "#### 4", "Logical Correctness", 1),
        (asked("math", "#### 4"), "#### 5", "Logical Correctness", -1),
        (asked("general", None, ("equals", "a")), "b", "equals", -1),
    ]:
        with subtests.test(answer=answer):
            critic = VerifierCritic(Verifier(), TASK_ASPECTS)
            (verdict,) = verifier.verify([(prompt, answer)])
            reading = critic.read(prompt, verdict)
            assert [(a.name, a.rating) for a in reading.value] == [(aspect, rating)]
            text = critic.text(prompt, verdict)
            question = Question(messages=(), expected=RatedAspects.all_of(aspect))
            assert question.read(text, "stop") == [reading]
