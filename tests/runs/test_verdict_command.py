"""`lpfloop verdict` on recorded results: verdicts, remarks, refusals."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.evaluation.recorded_results import ResultFields, of_two
from lpfloop.loop.evaluation.recorded_verdict import Standard, verdict_on


def written(folder, name, rows):
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def results(folder, name, values, **fields):
    """Write one row a prompt; a callable field gets the prompt's number."""
    rows = [
        {"id": n, "score": value} | {k: f(n) if callable(f) else f for k, f in fields.items()}
        for n, value in enumerate(values)
    ]
    return written(folder, f"{name}.jsonl", rows)


def asked(*options):
    result = CliRunner().invoke(app, ["verdict", *map(str, options)])
    return result.exit_code, result.stdout, result.stderr


def verdict(a, b, *options):
    code, stdout, stderr = asked("--a", a, "--b", b, "--json", *options)
    assert code == 0, stderr
    return json.loads(stdout)


def refusal(a, b):
    code, stdout, stderr = asked("--a", a, "--b", b)
    assert (code, stdout) == (2, "")
    assert len(stderr.strip().splitlines()) == 1
    return stderr


HALF = [n % 2 for n in range(400)]
MORE = [1 if n % 10 == 0 else n % 2 for n in range(400)]


def test_gain_with_bounds(tmp_path):
    a, b = results(tmp_path, "a", HALF), results(tmp_path, "b", MORE)
    found = verdict(a, b)
    assert found["answer"] == "better"
    assert (found["before"], found["after"]) == (0.5, 0.6)
    assert 0 < found["low"] < 0.1 < found["high"]
    assert (found["gained"], found["lost"], found["needed"]) == (0.1, 0, None)
    back = verdict(b, a)
    assert (back["answer"], back["lost"]) == ("not better", 0.1)
    assert asked("--a", a, "--b", b, "--require", "better")[0] == 0
    assert asked("--a", b, "--b", a, "--require", "better")[0] == 1


def test_clusters(tmp_path):
    fields = {"cluster": lambda n: f"text {n // 20}"}
    values = [1 if n < 200 else v if n % 3 else 0 for n, v in enumerate(HALF)]
    a, b = results(tmp_path, "a", HALF, **fields), results(tmp_path, "b", values, **fields)
    found = verdict(a, b)
    assert (found["n"], found["clusters"]) == (400, 20)
    alone = verdict(a, b, "--cluster", "id")
    assert alone["clusters"] == 400
    assert alone["low"] > found["low"]


def test_templated_prompts_in_one_cluster(tmp_path):
    templated = {"prompt": lambda n: f"What is the sum of {n} and {n + 7} and {3 * n} today?"}
    a = results(tmp_path, "a", HALF[:40], **templated)
    b = results(tmp_path, "b", [1] * 40, **templated)
    found = verdict(a, b)
    assert (found["answer"], found["clusters"], found["low"]) == ("undecided", 1, None)
    first, *_, told = asked("--a", a, "--b", b)[1].partition("\n")
    assert "undecided: 40 prompts are only 1 cluster" in first
    assert "--cluster" in " ".join(told.split())
    apart = {**templated, "cluster": lambda n: f"c{n}"}
    a, b = results(tmp_path, "c", HALF[:40], **apart), results(tmp_path, "d", [1] * 40, **apart)
    assert verdict(a, b)["answer"] == "better"


def test_bounds_of_shares(tmp_path):
    a, b = results(tmp_path, "a", [0] * 12), results(tmp_path, "b", [1] * 11 + [0])
    found = verdict(a, b, "--error-rate", "0.001")
    assert -1 <= found["low"] < found["difference"] < found["high"] == 1
    a, b = results(tmp_path, "c", [0] * 12), results(tmp_path, "d", [7] * 11 + [0])
    assert verdict(a, b, "--error-rate", "0.001")["high"] > 7


def test_other_prompts_are_refused(tmp_path):
    a = results(tmp_path, "a", HALF, prompt=lambda n: f"question {n}")
    moved = [{"id": n + 1000, "score": 1} for n in range(5)]
    assert "prompt" in refusal(a, written(tmp_path, "b.jsonl", moved))
    other = results(tmp_path, "c", HALF, prompt=lambda n: f"riddle {n}")
    assert "riddle 0" in refusal(a, other)


def test_different_origin_is_refused(tmp_path):
    for field in ["judge", "metric"]:
        a = results(tmp_path, "a", HALF, **{field: "one"})
        told = refusal(a, results(tmp_path, "b", MORE, **{field: "two"}))
        assert "'one'" in told
        assert "'two'" in told


def test_bad_row_is_refused_with_its_place(tmp_path):
    for row, reason in [
        ({"id": 2, "score": "much"}, "line 2: 'score'"),
        ({"id": None, "score": 1}, "line 2: lacks 'id'"),
        ({"id": 2}, "line 2: lacks the field 'score'"),
    ]:
        path = written(tmp_path, "a.jsonl", [{"id": 1, "score": 1}, row])
        assert reason in refusal(path, path)
    assert "none.jsonl" in refusal(tmp_path / "none.jsonl", path)


def test_published_systems(shared_data):
    path = shared_data / "gsm8k_model_solutions.jsonl"

    def answer(a, b):
        fields = ResultFields(value=f"{a}.is_correct")
        found = verdict_on(of_two(path, path, fields, f"{b}.is_correct"), Standard())
        return found.decision.answer

    assert answer("6b_finetuning", "6b_verification") == "better"
    assert answer("175b_verification", "6b_verification") == "not better"
    # Cobbe et al. 2021: 6B with a verifier is "slightly" better than a finetuned 175B.
    assert answer("175b_finetuning", "6b_verification") == "undecided"


def test_preferences_give_win_rates(tmp_path):
    def row(n, preference):
        return {
            "instruction": f"question {n}",
            "output_1": "7",
            "output_2": "8",
            "preference": preference,
        }

    given = [1, 2, 0, 1.5, 1.75, 2 + 1e-12, None]
    file = written(tmp_path, "a.jsonl", [row(n, value) for n, value in enumerate(given)])
    code, stdout, stderr = asked("--preferences", file, "--json")
    assert code == 0, stderr
    found = json.loads(stdout)
    assert found["after"] == pytest.approx((0 + 1 + 0.5 + 0.5 + 0.75 + 1) / 6)
    assert found["n"] == 6
    for bad in ({**row(1, 3)}, {**row(1, True)}, {**row(1, 2), "generator_2": "other"}):
        file = written(tmp_path, "b.jsonl", [{**row(0, 1), "generator_2": "one"}, bad])
        code, stdout, stderr = asked("--preferences", file)
        assert (code, stdout, len(stderr.strip().splitlines())) == (2, "", 1)
