"""Answers that are too large to compare cost milliseconds; none that is meant is among them."""

import json
import resource

import pytest
from effort import least_effort
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.critics import math_pool
from lpfloop.critics.math_answers import answer_to, final_answer, reference_answer
from lpfloop.critics.math_limits import too_large
from lpfloop.critics.math_numbers import quick_equal
from lpfloop.critics.math_pool import MathPool
from lpfloop.critics.verify import Verdict, Verifier, VerifierCritic
from lpfloop.stores.records import Message, Prompt

MOST_EFFORT = 380


def boxed(text: str) -> str:
    return f"\\boxed{{{text}}}"


def asked(reference: str) -> Prompt:
    return Prompt(
        prompt_id="p",
        task="math",
        split="train",
        messages=(Message(role="user", content="?"),),
        reference=reference,
        checks=(),
        source="test",
    )


BOMBS = {
    "a tower": boxed("9^{9^{9^9}}"),
    "a tower of brackets": boxed("(9)^{(9)^{(9)^{(9)}}}"),
    "a tower in Python": "The answer is 9**9**9**9.",
    "a negative tower": boxed("9^{-9^{9^9}}"),
    "a large exponent": boxed("2^{100000000}"),
    "factorials": boxed("9!!!!"),
    "a factorial": boxed("(9^9)!"),
    "a binomial": boxed(r"\binom{1000000}{500000}"),
    "brackets": boxed("(" * 5000 + "1" + ")" * 5000),
    "fifty brackets": boxed("(" * 50 + "1" + ")" * 50),
    "a sum": boxed("1+" * 100_000 + "1"),
    "fractions": boxed(r"\frac{1}{1+" * 300 + "1" + "}" * 300),
    "roots": boxed(r"\sqrt{" * 60 + "2" + "}" * 60),
    "a set": boxed(r"\{" + ",".join(map(str, range(3000))) + r"\}"),
    "a power of a sum": boxed("(x+y+z)^{200}"),
    "a product": boxed("x" * 2000),
    "a text that repeats a formula": "x^2+1 " * 650,
    "an announced sum": "The answer is " + "1+" * 20_000 + "1",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_milliseconds_and_says_why(name) -> None:
    with Verifier(workers=1) as verifier:
        found = list[Verdict]()
        judged = [(asked(boxed(r"\frac{7}{2}+x")), BOMBS[name])]
        assert (
            least_effort(lambda: found.extend(verifier.verify(judged)), MOST_EFFORT) < MOST_EFFORT
        )
        assert not verifier.pool_started
    verdict = found[0]
    assert (verdict.rating, verdict.reason) == (None, "too_large")
    critic = VerifierCritic(task_aspects={})
    assert critic.read(asked("1"), verdict).status == "too_large"


HOSTILE = {
    "a million digits": "9" * 1_000_000,
    "announced digits": "The answer is " + "9" * 1_000_000,
    "open boxes": "\\boxed{" * 200_000,
    "closed braces": boxed("1" + "}" * 200_000),
    "open braces": boxed("{" * 100_000),
    "boxes that are joined": " and ".join(boxed(str(n)) for n in range(20_000)),
    "marks": "the answer is " * 100_000,
    "marks that go on": "answer to " * 200_000,
    "signs": "#" * 500_000,
    "spaces": "answer:" + " " * 500_000 + "5",
    "dollars": "$" * 200_000,
    "units": "The answer is 5 " + "eggs " * 100_000,
    "commands": r"\frac" * 50_000,
    "text commands": boxed(r"\text{" * 20_000),
    "mixed numbers": "The answer is " + "1 1/" * 50_000,
    "myriads": "1万" * 100_000,
    "tags": "<answer>" * 100_000,
    "letters": "a" * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_found_and_limited_in_time(name) -> None:
    wanted = reference_answer("#### 18")

    def compare() -> None:
        answer = answer_to(wanted, final_answer(HOSTILE[name]))
        if quick_equal(wanted, answer) is None:
            too_large(answer)

    assert least_effort(compare, MOST_EFFORT) < MOST_EFFORT


SLOW = {
    "a sum": boxed(r"\sum_{i=1}^{10^9} \frac{1}{i^2}"),
    "an integral": boxed(r"\int_0^1 \sin(x^{x^x}) e^{x^2} dx"),
}


def test_what_the_limits_let_pass_is_decided_within_its_processor_time() -> None:
    asked_of = asked(boxed(r"\frac{7}{2}+x"))
    with Verifier(workers=1) as verifier:
        verdicts = verifier.verify([(asked_of, text) for text in SLOW.values()])
    assert [verdict.reason for verdict in verdicts] == ["timeout"] * len(SLOW)
    for verdict in verdicts:
        assert dict(verdict.metrics)["math_undecided"] == 1
        assert "math_accuracy" not in dict(verdict.metrics)


BUSY = """
import json, signal, sys
print('"ready"', flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, asked["limit_s"])
    while asked["answer"]["text"] == "busy":
        pass
    print('"equal"', flush=True)
"""


def test_a_comparison_is_ended_by_the_time_it_has_used(monkeypatch, tmp_path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(BUSY, "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)
    limit_s = 0.3

    def used(text: str, outcome: str) -> float:
        """Return the seconds of processor time of a worker that compares one answer."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        with MathPool(workers=1, limit_s=limit_s) as pool:
            assert pool.compare([(final_answer("x"), final_answer(text))]) == [outcome]
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    # By the clock it may take thirty times the limit.
    assert used("#### busy", "timeout") - used("#### idle", "equal") < 2 * limit_s


ASKED = ("problem", "question", "prompt")
MEANT = [
    "2^{2^{2^2}}",
    "x^{y^{z}}",
    "10^{100}",
    "100!",
    "2^{1000}",
    "e^{-x^2/2}",
    r"\left(\frac{1}{2}\right)^{10}",
    "(x+1)^{50}",
    r"\binom{50}{25}",
    r"\{1,2,3,\ldots,100\}",
    r"\text{all real numbers except two, for which the expression has no value at all}",
    r"\begin{pmatrix} 1 & 2 & 3 \\ 4 & 5 & 6 \\ 7 & 8 & 9 \end{pmatrix}",
    r"\frac{-b \pm \sqrt{b^2 - 4ac}}{2a}",
    "0." + "3" * 900,
    "1,234,567,890",
    r"\frac{1}{1+\frac{1}{1+\frac{1}{1+\frac{1}{x}}}}",
    r"\sum_{i=1}^{1000} i^{2}",
]


@pytest.mark.parametrize("text", MEANT)
def test_what_is_meant_is_compared(text) -> None:
    assert not too_large(final_answer(boxed(text)))


def test_what_is_as_large_as_the_reference_is_compared() -> None:
    with Verifier(workers=1, limit_s=1) as verifier:
        tower = asked(boxed("9^{9^{9^9}}"))
        same, other = verifier.verify([(tower, boxed("9^{9^{9^9}}")), (tower, boxed("8^{9^9}"))])
    assert same.rating == 1
    assert other.reason in {"timeout", "failed", "wrong"}


@pytest.mark.parametrize(
    "name", ["gsm8k_model_solutions", "gsm8k_train_first4000", "math500", "qwen_maj8", "svamp"]
)
def test_no_published_solution_is_too_large(shared_data, name) -> None:
    def texts(value: object) -> list[str]:
        if isinstance(value, dict):
            return [
                text for name, part in value.items() if name not in ASKED for text in texts(part)
            ]
        if isinstance(value, list):
            return [text for part in value for text in texts(part)]
        return [value] if isinstance(value, str) else []

    lines = (shared_data / f"{name}.jsonl").read_text().strip().split("\n")
    found = [text for line in lines for text in texts(json.loads(line))]
    assert len(found) > 100
    assert not [text for text in found if too_large(final_answer(text))]


@settings(max_examples=300)
@given(st.text(alphabet="19³٣x+-^{}()[]!*/\\ ,.frac", max_size=300))
def test_any_text_is_judged_in_time(text) -> None:
    assert least_effort(lambda: too_large(final_answer(text)), MOST_EFFORT) < MOST_EFFORT
