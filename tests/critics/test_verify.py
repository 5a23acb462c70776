"""The verifier agrees with published labels, and its quick comparison with math-verify."""

import itertools
import os
import selectors
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import ended, wait_until

from lpfloop.critics import math_pool
from lpfloop.critics.judge import Question
from lpfloop.critics.math_answers import final_answer
from lpfloop.critics.math_numbers import quick_equal
from lpfloop.critics.math_pool import MathPool, MathVerifyMissingError
from lpfloop.critics.rating_dictionary import RatedAspects
from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Check, Message, Prompt

TASK_ASPECTS = {"math": "Logical Correctness", "facts": "Factuality"}


def asked(task, reference=None, *checks):
    return Prompt(
        prompt_id="p",
        task=task,
        split="held-out",
        messages=(Message(role="user", content="?"),),
        reference=reference,
        checks=tuple(Check(kind=kind, argument=argument) for kind, argument in checks),
        source="test",
    )


@pytest.fixture(scope="module")
def verifier():
    with Verifier(limit_s=20) as shared:
        yield shared


def right(verifier, items):
    return [dict(v.metrics)["math_accuracy"] == 1 for v in verifier.verify(items)]


# Math -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "final"),
    [
        ("2+2=4.\n#### 4", "4"),
        ("So \\boxed{\\frac{1}{2}} it is.", "\\frac{1}{2}"),
        ("The answer is 18.", "18"),
        ("The answer is 3. Wait. The Answer is: **18 apples**.", "18 apples"),
        ("Thus it holds.\nA: 1,234", "1,234"),
        ("Answer: 18+4=22. The answer is 19.", "19"),
        ("The answer is \\boxed{7}.", "7"),
        ("The answer is:\n\n7", "7"),
        ("The answer is $x+1$.", "x+1"),
        ("p - q", "p - q"),
    ],
)
def test_the_last_mark_gives_the_final_answer(text, final):
    assert final_answer(text).text == final
    assert final_answer(text).marked


def test_without_a_mark_the_last_number_counts(verifier):
    prompt = asked("math", "18+4=22. 22-3=19. The answer is 19.")
    answers = ["18+4=22. 22-3=19.", "She has 19 left.", "19 minus 1 is 18.", "No idea.", ""]
    assert right(verifier, [(prompt, a) for a in answers]) == [True, True, False, False, False]


def test_forms_of_one_number_are_equal(verifier):
    items = [
        (asked("math", "#### 1,234"), "The answer is 1234 dollars."),
        (asked("math", "#### 0.5"), "The answer is 1/2."),
        (asked("math", "\\boxed{\\frac{1}{2}}"), "It is 0.5"),
        (asked("math", "#### 18"), "The answer is $18.00."),
        (asked("math", "\\boxed{\\$36}"), "It costs \\$36."),
        (asked("math", "\\text{Evelyn}"), "The answer is Evelyn."),
        (asked("math", "x^2 - 1"), "The answer is (x-1)(x+1)."),
    ]
    assert all(right(verifier, items))


def test_plain_numbers_need_no_process():
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
        "The answer is {}",
        "The answer is ${}.",
        "The answer is {} apples.",
        "1+1=2. The answer is {}.",
        "#### {}",
        "so 3*4=12\n#### {}",
        "A: {}",
        "\\boxed{{{}}}",
        "She has {} left.",
        "18+4=22. 22-3={}.",
        "It costs ${}",
        "{}",
        "{}%",
        "The answer is {}%.",
        "The answer is {} percent.",
        "x = {}",
        "5 - {}",
        "3/{}",
        "1 {}",
    ]
)


def _percents(text):
    return "%" in text or "percent" in text


@settings(max_examples=300)
@given(gold=NUMBERS, given_number=NUMBERS, same=st.booleans(), frames=st.tuples(FRAMES, FRAMES))
def test_the_quick_comparison_never_contradicts_math_verify(gold, given_number, same, frames):
    math_verify = pytest.importorskip("math_verify")
    reference = frames[0].format(gold)
    answer = frames[1].format(gold if same else given_number)
    finals = final_answer(reference), final_answer(answer)
    quick = quick_equal(*finals)
    if finals[0].text == finals[1].text and finals[0].marked and finals[1].marked:
        assert quick is True
    elif quick is not None and _percents(reference) == _percents(answer):
        # Where one side alone is of percent, the reference decides, and not math-verify.
        parsed = [math_verify.parse(text) for text in (reference, answer)]
        # Of -01 it reads nothing, so it says nothing that could be contradicted.
        assert quick == math_verify.verify(*parsed) or not any(parsed)


@given(number=st.integers(-(10**12), 10**12))
def test_an_integer_equals_its_decimal_form(number):
    gold, answer = final_answer(f"#### {number:,}"), final_answer(f"The answer is {number}.0.")
    assert quick_equal(gold, answer) is True
    assert quick_equal(gold, final_answer(f"#### {Decimal(number) + 1}")) is False


def test_all_published_labels_of_four_systems_on_gsm8k_are_met(verifier, shared_rows):
    rows = shared_rows("gsm8k_model_solutions.jsonl")
    labelled = [
        (asked("math", row["ground_truth"]), system["solution"], system["is_correct"])
        for row in rows
        for system in row.values()
        if isinstance(system, dict)
    ]
    assert len(labelled) > 2_000
    verdicts = right(verifier, [(prompt, answer) for prompt, answer, _ in labelled])
    assert verdicts == [label for _, _, label in labelled]


def test_gsm8k_references_verify_against_themselves_without_a_process(shared_rows):
    rows = shared_rows("gsm8k_train_first4000.jsonl")
    with Verifier() as fresh:
        assert all(right(fresh, [(asked("math", r["answer"]), r["answer"]) for r in rows]))
        assert not fresh.pool_started


def test_math_references_verify_by_solution_and_by_answer(verifier, shared_rows):
    rows = shared_rows("math500.jsonl")
    forms = [
        (asked("math", row[gold]), answer)
        for row in rows
        for gold in ("solution", "answer")
        for answer in (row["solution"], row["answer"], f"The answer is ${row['answer']}$.")
    ]
    assert all(right(verifier, forms))
    neighbours = itertools.pairwise(rows)
    wrong = [
        (asked("math", one["solution"]), two["solution"])
        for one, two in neighbours
        if one["answer"] != two["answer"]
    ]
    assert sum(right(verifier, wrong)) <= 1


class Patience(selectors.DefaultSelector):
    """Waits for workers by a clock that stands still while any has something to do but to hang."""

    now = 0.0
    hanging = Path()

    def select(self, timeout):
        while not (events := super().select(0.01)):
            workers = [key.data for key in self.get_map().values()]
            if all(worker.ready and self.hangs(worker) for worker in workers):
                type(self).now += timeout
                break
        return events

    def hangs(self, worker):
        return worker.job is None or (self.hanging / str(worker.process.pid)).exists()


def test_a_comparison_that_hangs_costs_its_own_worker_only(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, os, sys, time\n"
        "from pathlib import Path\n"
        "print('\"ready\"', flush=True)\n"
        "for line in sys.stdin:\n"
        "    text = json.loads(line)['answer']['text']\n"
        "    if text == 'hang':\n"
        "        Path(__file__).with_name(str(os.getpid())).touch()\n"
        "        time.sleep(600)\n"
        "    if text == 'die': sys.exit(1)\n"
        "    print('\"equal\"', flush=True)\n",
        "utf-8",
    )
    monkeypatch.setattr(math_pool, "WORKER", worker)
    monkeypatch.setattr(Patience, "now", 0.0)
    monkeypatch.setattr(Patience, "hanging", tmp_path)
    monkeypatch.setattr(math_pool, "time", SimpleNamespace(monotonic=lambda: Patience.now))
    monkeypatch.setattr(math_pool.selectors, "DefaultSelector", Patience)
    words = ["a", "hang", "b", "die", "c", "hang", "d"]
    with MathPool(workers=2, limit_s=1) as pool:
        gold = final_answer("#### x")
        outcomes = pool.compare([(gold, final_answer(f"#### {word}")) for word in words])
        assert pool.started
    expected = ["equal", "timeout", "equal", "failed", "equal", "timeout", "equal"]
    assert outcomes == expected
    assert Patience.now == math_pool.PATIENCE
    assert not pool.started


def test_a_bomb_is_stopped_and_the_next_comparison_works():
    with Verifier(workers=1) as fresh:
        bomb = (asked("math", r"\boxed{9^{9^{9^{9}}}}"), r"\boxed{8^{9^{9^{9}}}}")
        five = asked("math", "#### 5")
        verdicts = fresh.verify([bomb, (five, "It is 10/2"), (five, "#### 5")])
    assert [dict(v.metrics).get("math_accuracy") for v in verdicts] == [None, 1, 1]
    assert verdicts[0].reason in {"timeout", "failed"}


HALF = (final_answer("#### 0.5"), final_answer("The answer is 1/2."))


def test_workers_have_no_secret_and_no_terminal_of_the_callers(monkeypatch):
    monkeypatch.setenv("PLANTED_KEY", "sk-planted")
    before = set(psutil.Process().children())
    with MathPool(workers=1, limit_s=20) as pool:
        assert pool.compare([HALF]) == ["equal"]
        (worker,) = set(psutil.Process().children()) - before
        assert "PLANTED_KEY" not in worker.environ()
        assert os.getsid(worker.pid) == worker.pid
    assert ended(worker.pid)


def test_workers_that_are_killed_while_idle_are_replaced():
    before = set(psutil.Process().children())
    with MathPool(workers=2, limit_s=20) as pool:
        assert pool.compare([HALF, HALF]) == ["equal", "equal"]
        # One of them may have made both comparisons while the other was still starting.
        workers = set(psutil.Process().children()) - before
        assert len(workers) == 2
        for worker in workers:
            worker.kill()
        wait_until(lambda: all(ended(worker.pid) for worker in workers))
        assert pool.compare([HALF] * 4) == ["equal"] * 4


DYING = """
import os, signal, sys
from pathlib import Path
starts = Path(__file__).with_suffix(".starts")
with starts.open("a") as file:
    file.write("x")
if len(starts.read_text()) <= {times}:
    os.kill(os.getpid(), signal.SIGKILL)
print('"ready"', flush=True)
for line in sys.stdin:
    print('"equal"', flush=True)
"""


def test_a_worker_that_is_killed_while_it_starts_is_replaced(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(DYING.format(times=math_pool.STARTS - 1), "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)
    with MathPool(workers=1, limit_s=20) as pool:
        assert pool.compare([HALF, HALF]) == ["equal", "equal"]
    assert len(worker.with_suffix(".starts").read_text()) == math_pool.STARTS


def test_workers_that_never_start_are_given_up(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(DYING.format(times=1000), "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)
    with MathPool(workers=1, limit_s=20) as pool:
        for attempts in (1, 2):
            with pytest.raises(MathVerifyMissingError):
                pool.compare([HALF])
            assert not pool.started
            starts = worker.with_suffix(".starts").read_text()
            assert len(starts) == attempts * math_pool.STARTS


PARENT = """
import psutil
from lpfloop.critics import math_pool
from lpfloop.critics.math_answers import final_answer
half, gold = final_answer("#### 1/2"), final_answer("#### 0.5")
pool = math_pool.MathPool(workers=2, limit_s=3)
pool.compare([(gold, half)] * 2)
print(*(child.pid for child in psutil.Process().children()), flush=True)
pool.compare([(gold, final_answer("\\\\boxed{9999999!}"))])
"""


def test_workers_end_after_a_parent_that_was_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        used = {worker.pid: worker.cpu_times().user for worker in workers}

        def held():
            """Hold up the worker that has begun the comparison."""
            at_work = [w for w in workers if w.cpu_times().user > used[w.pid] + 0.05]
            for worker in at_work:
                worker.suspend()
            return at_work

        wait_until(held)
        parent.kill()
        parent.wait()
        assert len(workers) == 2
        left = [worker for worker in workers if not ended(worker.pid)]
        assert left
        for worker in left:
            worker.resume()
        wait_until(lambda: all(ended(worker.pid) for worker in workers))


def test_without_math_verify_the_message_names_the_remedy(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text("import no_such_module_here\n", "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)
    with (
        Verifier() as fresh,
        pytest.raises(MathVerifyMissingError, match="pip install 'math-verify>="),
    ):
        fresh.verify([(asked("math", "#### 0.5"), "The answer is 1/2.")])


# Checks, and the verifier as a critic ---------------------------------------------------


def test_checks_give_the_metrics_that_apply(verifier):
    prompt = asked("general", None, ("json_valid", ""), ("self_identifies", "Al"))
    both, one, none = verifier.verify([(prompt, t) for t in ('{"I": "Al"}', "I am Al", "Hi")])
    assert dict(both.metrics) == {"general_fulfilled": 1, "json_valid": 1, "self_identified": 1}
    assert dict(one.metrics) == {"general_fulfilled": 0, "json_valid": 0, "self_identified": 1}
    assert [v.rating for v in (both, one, none)] == [1, 0, -1]
    (plain,) = verifier.verify([(asked("general", None, ("equals", "a")), "a")])
    assert plain.metrics == (("general_fulfilled", 1.0),)


def test_a_prompt_with_nothing_to_verify_has_no_check(verifier):
    for prompt in (asked("general"), asked("math"), asked("poems", "Roses are red.")):
        (verdict,) = verifier.verify([(prompt, "4")])
        assert (verdict.metrics, verdict.rating, verdict.reason) == ((), None, "no_check")
        reading = VerifierCritic(task_aspects=TASK_ASPECTS).read(prompt, verdict)
        assert reading.status == "no_check"
        assert [aspect.rating for aspect in reading.value] == [None]


@pytest.mark.parametrize(
    ("prompt", "answer", "aspect", "rating"),
    [
        (asked("math", "#### 4"), "#### 4", "Logical Correctness", 1),
        (asked("math", "#### 4"), "#### 5", "Logical Correctness", -1),
        (asked("general", None, ("equals", "a")), "b", "Comprehension", -1),
    ],
)
def test_as_a_critic_it_rates_the_aspect_of_the_task(verifier, prompt, answer, aspect, rating):
    critic = VerifierCritic(task_aspects=TASK_ASPECTS)
    (verdict,) = verifier.verify([(prompt, answer)])
    reading = critic.read(prompt, verdict)
    assert [(a.name, a.rating) for a in reading.value] == [(aspect, rating)]
    text = critic.text(prompt, verdict)
    question = Question(messages=(), expected=RatedAspects.all_of(aspect))
    assert question.read(text, "stop") == [reading]


def test_an_undecided_comparison_is_unscored(verifier):
    prompt = asked("math", "It cannot be told.\nNobody knows.")
    (verdict,) = verifier.verify([(prompt, "The answer is 4.")])
    assert verdict.metrics == (("math_undecided", 1.0), ("math_unmarked", 0.0))
    assert verdict.rating is None
    reading = VerifierCritic(task_aspects=TASK_ASPECTS).read(prompt, verdict)
    assert reading.status == "unreadable"


def test_the_critics_digest_depends_on_its_aspects():
    digests = {VerifierCritic(task_aspects=t).digest for t in (TASK_ASPECTS, {"math": "Logic"})}
    assert len(digests) == 2
