"""Worker processes compare answers with math-verify, and may fail in any way."""

import itertools
import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from processes import ended, wait_until
from rows import PROMPT

from lpfloop.critics import math_pool
from lpfloop.critics.math_answers import final_answer
from lpfloop.critics.math_pool import MathPool, MathVerifyMissingError
from lpfloop.critics.verify import Verifier


def asked(task, reference):
    return replace(PROMPT, task=task, reference=reference, checks=())


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def verifier():
    with Verifier(limit_s=20) as shared:
        yield shared


def right(verifier, items):
    return [dict(v.metrics)["math_accuracy"] == 1 for v in verifier.verify(items)]


def test_published_gsm8k_labels(verifier, shared_data):
    rows = read_rows(shared_data / "gsm8k_model_solutions.jsonl")
    labelled = [
        (asked("math", row["ground_truth"]), system["solution"], system["is_correct"])
        for row in rows
        for system in row.values()
        if isinstance(system, dict)
    ]
    assert len(labelled) > 2_000
    verdicts = right(verifier, [(prompt, answer) for prompt, answer, _ in labelled])
    assert verdicts == [label for _, _, label in labelled]


def test_qwen_labels(verifier, shared_rows):
    labelled = [
        (asked("math", row["gt"]), answer, label)
        for row in shared_rows("qwen_maj8.jsonl")
        for answer, label in zip(row["code"], row["score"], strict=True)
    ]
    verdicts = right(verifier, [(prompt, answer) for prompt, answer, _ in labelled])
    agreed = sum(ours == label for ours, (_, _, label) in zip(verdicts, labelled, strict=True))
    # One label is wrong: 70,000 / 7 is 10,000.
    assert (agreed, len(labelled)) == (335, 336)


def test_svamp_equations(verifier, shared_rows):
    rows = shared_rows("svamp.jsonl")
    assert all(right(verifier, [(asked("math", str(r["Answer"])), r["Equation"]) for r in rows]))


def test_math500_references(verifier, shared_data):
    rows = read_rows(shared_data / "math500.jsonl")
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


def test_a_hanging_comparison(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import json, sys, time\n"
        "print('\"ready\"', flush=True)\n"
        "for line in sys.stdin:\n"
        "    text = json.loads(line)['answer']['text']\n"
        "    if text == 'hang': time.sleep(600)\n"
        "    if text == 'die': sys.exit(1)\n"
        "    print('\"equal\"', flush=True)\n",
        "utf-8",
    )
    monkeypatch.setattr(math_pool, "WORKER", worker)
    words = ["a", "hang", "b", "die", "c", "hang", "d"]
    with closing(MathPool(workers=2, limit_s=0.2)) as pool:
        gold = final_answer("#### x")
        outcomes = pool.compare([(gold, final_answer(f"#### {word}")) for word in words])
        assert pool.started
    expected = ["equal", "timeout", "equal", "failed", "equal", "timeout", "equal"]
    assert outcomes == expected
    assert not pool.started


HALF = (final_answer("#### 0.5"), final_answer("The answer is 1/2."))


def test_workers_lack_secrets(environ):
    environ["PLANTED_KEY"] = "sk-planted"
    before = set(psutil.Process().children())
    with closing(MathPool(workers=1, limit_s=20)) as pool:
        assert pool.compare([HALF]) == ["equal"]
        (worker,) = set(psutil.Process().children()) - before
        assert "PLANTED_KEY" not in worker.environ()
        assert os.getsid(worker.pid) == worker.pid
    assert ended(worker.pid)


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


def test_workers_end_after_their_parent():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        used = {worker.pid: worker.cpu_times().user for worker in workers}

        def held():
            """Suspend the worker that has started the comparison."""
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


def test_without_math_verify(monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text("import no_such_module_here\n", "utf-8")
    monkeypatch.setattr(math_pool, "WORKER", worker)
    with (
        Verifier() as fresh,
        pytest.raises(MathVerifyMissingError, match="pip install 'math-verify>="),
    ):
        fresh.verify([(asked("math", "#### 0.5"), "The answer is 1/2.")])


def test_slow_comparisons_time_out() -> None:
    sums = [
        r"\boxed{\sum_{i=1}^{10^9} \frac{1}{i^2}}",
        r"\boxed{\int_0^1 \sin(x^{x^x}) e^{x^2} dx}",
    ]
    wanted = asked("math", r"\boxed{\frac{7}{2}+x}")
    with Verifier(workers=1) as verifier:
        verdicts = verifier.verify([(wanted, text) for text in sums])
    assert [verdict.reason for verdict in verdicts] == ["timeout", "timeout"]
    assert [dict(verdict.metrics).get("math_accuracy") for verdict in verdicts] == [None, None]


BOTH = "\\boxed{1} and \\boxed{-2}"
SETS = [
    (BOTH, "The roots are \\boxed{-2} or \\boxed{1}.", "right"),
    (BOTH, "\\boxed{1}", "wrong"),
    (BOTH, "One root is \\boxed{1}. Then x + 2 = 0, so the other is \\boxed{-2}.", "right"),
    ("1, -2", "First, \\boxed{5}. Hence \\boxed{-2, 1}.", "right"),
    ("-2", "It is \\boxed{1} or \\boxed{-2}.", "wrong"),
    ("4", "\\boxed{4}, that is, \\boxed{4}", "right"),
    ("\\frac{5}{2}", "The answer is 2 1/2.", "right"),
    ("2 1/2 hours", "The answer is 3/2 hours.", "wrong"),
    ("Nobody knows.\nIt cannot be told.", "The answer is 3 or 4.", "unreadable"),
]


def test_several_boxes():
    items = [(asked("math", reference), answer) for reference, answer, _ in SETS]
    with Verifier(workers=1, limit_s=20) as verifier:
        found = [verdict.reason for verdict in verifier.verify(items)]
    assert found == [outcome for *_, outcome in SETS]
