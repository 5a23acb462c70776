"""`lpfloop verdict` on recorded results: what it answers, what it remarks, what it refuses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.evaluation.paired_prompts import of_two
from lpfloop.loop.evaluation.recorded_results import ResultFields
from lpfloop.loop.evaluation.recorded_verdict import Standard, verdict_on

DATA = Path(__file__).parents[3] / "shared" / "data"


def written(folder, name, rows):
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def results(folder, name, values, **fields):
    """Write one row a prompt; a field that is a function is asked for each number."""
    rows = [
        {"id": n, "score": value} | {k: f(n) if callable(f) else f for k, f in fields.items()}
        for n, value in enumerate(values)
    ]
    return written(folder, f"{name}.jsonl", rows)


def asked(*options):
    result = CliRunner().invoke(app, ["verdict", *map(str, options)])
    return result.exit_code, result.stdout, result.stderr


def verdict(folder, a, b, *options):
    code, stdout, stderr = asked("--a", a, "--b", b, "--json", *options)
    assert code == 0, stderr
    return json.loads(stdout)


def refusal(folder, a, b, *options):
    code, stdout, stderr = asked("--a", a, "--b", b, *options)
    assert (code, stdout) == (2, "")
    assert len(stderr.strip().splitlines()) == 1
    return stderr


HALF = [n % 2 for n in range(400)]
MORE = [1 if n % 10 == 0 else n % 2 for n in range(400)]


def test_a_gain_is_told_with_its_bounds_and_what_changed(tmp_path):
    a, b = results(tmp_path, "a", HALF), results(tmp_path, "b", MORE)
    found = verdict(tmp_path, a, b)
    assert found["answer"] == "better"
    assert (found["before"], found["after"]) == (0.5, 0.6)
    assert 0 < found["low"] < 0.1 < found["high"]
    assert (found["gained"], found["lost"], found["needed"]) == (0.1, 0, None)
    back = verdict(tmp_path, b, a)
    assert (back["answer"], back["lost"]) == ("not better", 0.1)
    code, stdout, _ = asked("--a", a, "--b", b)
    assert code == 0
    assert "better: b is better than a" in stdout
    assert "score: 0.500 → 0.600, +0.100 (from +0.0" in stdout
    assert "400 prompts: 10.0% gained, 0.0% lost" in stdout


def test_a_small_difference_is_undecided_and_says_how_many_prompts_would_decide(tmp_path):
    values = [1 - v if n % 20 in (1, 2, 4) else v for n, v in enumerate(HALF)]
    a, b = results(tmp_path, "a", HALF[:100]), results(tmp_path, "b", values[:100])
    found = verdict(tmp_path, a, b)
    assert (found["answer"], found["difference"]) == ("undecided", 0.05)
    assert found["low"] is not None
    assert 100 < found["needed"] < 400
    _, stdout, _ = asked("--a", a, "--b", b)
    assert f"undecided: about {found['needed']:,} prompts like these would decide" in stdout


def test_a_later_look_asks_for_more(tmp_path):
    values = [1 if n % 80 == 0 else v for n, v in enumerate(HALF)]
    a, b = results(tmp_path, "a", HALF), results(tmp_path, "b", values)
    assert verdict(tmp_path, a, b)["answer"] == "better"
    late = verdict(tmp_path, a, b, "--look", "4")
    assert late["answer"] == "undecided"
    assert late["level"] == pytest.approx(0.05 * 0.6079 / 16, rel=1e-3)


def test_a_required_gain_that_is_missing_is_an_exit_code(tmp_path):
    a, b = results(tmp_path, "a", HALF), results(tmp_path, "b", MORE)
    assert asked("--a", a, "--b", b, "--require", "better")[0] == 0
    assert asked("--a", b, "--b", a, "--require", "better")[0] == 1
    assert asked("--a", b, "--b", a)[0] == 0


def test_clusters_of_the_rows_widen_the_bounds_and_families_are_told_apart(tmp_path):
    fields = {"cluster": lambda n: f"text {n // 20}", "family": lambda n: f"kind {n // 200}"}
    values = [1 if n < 200 else v if n % 3 else 0 for n, v in enumerate(HALF)]
    a, b = results(tmp_path, "a", HALF, **fields), results(tmp_path, "b", values, **fields)
    found = verdict(tmp_path, a, b)
    assert (found["n"], found["clusters"]) == (400, 20)
    assert {name: part["answer"] for name, part in found["family"].items()} == {
        "kind 0": "better",
        "kind 1": "not better",
    }
    assert found["surely_lost"] == ["family kind 1"]
    assert found["surely_gained"] == ["family kind 0"]
    alone = verdict(tmp_path, a, b, "--cluster", "id")
    assert alone["clusters"] == 400
    assert alone["low"] > found["low"]


def test_wordings_of_one_question_count_as_one_where_no_cluster_is_named(tmp_path):
    text = "What is {} plus {} if you count slowly and carefully from the beginning?".format
    fields = {"prompt": lambda n: text(n, n + 1)}
    a, b = results(tmp_path, "a", HALF, **fields), results(tmp_path, "b", MORE, **fields)
    found = verdict(tmp_path, a, b)
    assert (found["clusters"], found["answer"]) == (1, "undecided")
    assert "400 prompts name no cluster, so near copies count as one" in found["remarks"]


def test_scores_booleans_texts_and_lists_of_them_are_values(tmp_path):
    csv = tmp_path / "a.csv"
    csv.write_text("id,correct\n1,true\n2,False\n3,1\n4,0.5\n5,\n")
    rows = [{"id": n, "correct": v} for n, v in ((1, True), (2, [True, False]), (3, 1), (4, 0.5))]
    found = verdict(tmp_path, csv, written(tmp_path, "b.jsonl", rows))
    assert (found["n"], found["before"], found["after"]) == (4, 0.625, 0.75)
    assert f"1 rows of {csv} have no value and were left out" in found["remarks"]


def test_copies_and_prompts_with_several_values_are_told(tmp_path):
    a = results(tmp_path, "a", HALF)
    rows = [json.loads(line) for line in a.read_text().splitlines()]
    b = written(tmp_path, "b.jsonl", [*rows, *rows[:3], {"id": 1, "score": 0}])
    found = verdict(tmp_path, a, b)
    assert found["n"] == 400
    assert found["after"] == pytest.approx(0.5 - 0.5 / 400)
    assert f"3 rows of {b} are copies of others and were counted once" in found["remarks"]
    assert f"1 prompts of {b} have several values, of which the mean counts" in found["remarks"]


def test_equal_files_and_equal_answers_are_found(tmp_path):
    a, b = results(tmp_path, "a", HALF[:9]), results(tmp_path, "b", HALF[:9])
    found = verdict(tmp_path, a, b)
    assert found["answer"] == "not better"
    assert found["remarks"][0] == "a and b are the same file, or equal ones"
    mine = results(tmp_path, "mine", HALF[:9], output=lambda n: f"answer {n}", by="x")
    other = results(tmp_path, "other", MORE[:9], output=lambda n: f"answer {n}", by="y")
    found = verdict(tmp_path, mine, other)
    assert found["answer"] == "not better"
    assert found["remarks"][0] == "a and b give the same answer to every prompt"


def test_constant_answers_and_values_and_missing_headroom_are_told(tmp_path):
    full = results(tmp_path, "full", [1] * 400, output=lambda n: f"answer {n}")
    constant = results(tmp_path, "constant", HALF, output="I cannot help with that.")
    found = verdict(tmp_path, full, constant)
    assert "there is no headroom: every value before is 1" in found["remarks"]
    assert "a has the value 1 for every prompt" in found["remarks"]
    assert any(r.startswith("b gives the same answer to every prompt") for r in found["remarks"])
    assert found["mean_length"]["b"] == 24


def test_results_on_other_prompts_are_refused(tmp_path):
    a = results(tmp_path, "a", HALF, prompt=lambda n: f"question {n}")
    moved = [{"id": n + 1000, "score": 1} for n in range(5)]
    assert "have no prompt in common" in refusal(tmp_path, a, written(tmp_path, "b.jsonl", moved))
    other = results(tmp_path, "c", HALF, prompt=lambda n: f"riddle {n}")
    told = refusal(tmp_path, a, other)
    assert f"prompt '0' is question 0 in {a} and riddle 0 in {other}" in told


def test_prompts_of_one_file_alone_are_counted(tmp_path):
    a, b = results(tmp_path, "a", HALF[:300]), results(tmp_path, "b", HALF)
    found = verdict(tmp_path, a, b)
    assert found["n"] == 300
    told = f"300 prompts are in both files; 0 are only in {a} and 100 only in {b}"
    assert told in found["remarks"]


@pytest.mark.parametrize("field", ["judge", "annotator", "baseline", "checker", "metric"])
def test_figures_of_different_origin_are_refused_naming_both(tmp_path, field):
    a = results(tmp_path, "a", HALF, **{field: "one"})
    told = refusal(tmp_path, a, results(tmp_path, "b", MORE, **{field: "two"}))
    assert "'one'" in told
    assert "'two'" in told
    assert "cannot be compared" in told
    same = results(tmp_path, "c", MORE, **{field: "one"})
    assert verdict(tmp_path, a, same)["answer"] == "better"


def test_figures_of_different_names_are_refused_unless_both_are_asked_for(tmp_path):
    a = results(tmp_path, "a", HALF)
    b = written(tmp_path, "b.jsonl", [{"id": n, "correct": v} for n, v in enumerate(MORE)])
    assert "holds 'score' and" in refusal(tmp_path, a, b)
    assert verdict(tmp_path, a, b, "--value", "score", "--value", "correct")["answer"] == "better"


def preferences(folder, name, won, *, baseline="short", **fields):
    rows = [
        {
            "instruction": f"instruction {n}",
            "output_1": baseline,
            "output_2": f"{name} says " * (1 + n % 7),
            "preference": 2 if n % won else 1,
        }
        | fields
        for n in range(200)
    ]
    return written(folder, f"{name}.jsonl", rows)


def test_preferences_against_one_baseline_are_compared_also_at_equal_lengths(tmp_path):
    middling = "b says " * 4
    a = preferences(tmp_path, "a", 2, baseline=middling)
    b = preferences(tmp_path, "b", 5, baseline=middling)
    found = verdict(tmp_path, a, b)
    assert (found["answer"], found["figure"], found["before"]) == ("better", "preference", 0.5)
    assert found["after"] == pytest.approx(0.8)
    assert found["length_controlled"]["b"]["win_rate"] == pytest.approx(80, abs=6)


def test_one_file_of_preferences_holds_both_models(tmp_path):
    path = preferences(tmp_path, "only", 5)
    code, stdout, stderr = asked("--preferences", path, "--json")
    assert code == 0, stderr
    found = json.loads(stdout)
    assert (found["answer"], found["before"]) == ("better", pytest.approx(0.2))
    assert found["after"] == pytest.approx(0.8)
    assert found["mean_length"]["a"] == 5


def test_preferences_against_other_outputs_of_the_baseline_are_refused(tmp_path):
    a = preferences(tmp_path, "a", 2)
    b = preferences(tmp_path, "b", 2, baseline="another")
    assert "differs between" in refusal(tmp_path, a, b)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 2, "score": "much"}, "line 2: 'score' must be true, false or a number, but is 'm"),
        ({"id": None, "score": 1}, "line 2: has no 'id', by which prompts are told apart"),
        ({"id": 2}, "line 2: has no field 'score'"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, row, reason):
    path = written(tmp_path, "a.jsonl", [{"id": 1, "score": 1}, row])
    assert reason in refusal(tmp_path, path, path)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "there is no run in"),
        (("--a", "a.jsonl"), "needs two files of results"),
        (("--a", "a.jsonl", "--preferences", "b.jsonl"), "holds both models"),
        (("run", "--a", "a.jsonl"), "or files, not both"),
        (("--a", "none.jsonl", "--b", "none.jsonl"), "none.jsonl"),
        (("--a", "a.jsonl", "--b", "a.jsonl", "--error-rate", "0.7"), "below 0.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, monkeypatch, options, reason):
    monkeypatch.chdir(tmp_path)
    results(tmp_path, "a", HALF)
    code, stdout, stderr = asked(*options)
    assert (code, stdout) == (2, "")
    assert reason in stderr


@pytest.mark.skipif(not DATA.is_dir(), reason="no data of published systems here")
def test_the_verdict_on_published_systems_is_that_of_their_paper():
    path = DATA / "gsm8k_model_solutions.jsonl"

    def answer(a, b):
        fields = ResultFields(value=f"{a}.is_correct")
        found = verdict_on(of_two(path, path, fields, f"{b}.is_correct"), Standard())
        return found.decision.answer

    assert answer("6b_finetuning", "6b_verification") == "better"
    assert answer("175b_verification", "6b_verification") == "not better"
    # Cobbe et al. 2021: 6B with a verifier is "slightly" better than a finetuned 175B.
    assert answer("175b_finetuning", "6b_verification") == "undecided"


@pytest.mark.skipif(not DATA.is_dir(), reason="no data of published systems here")
def test_a_published_model_is_not_compared_with_itself_over_another_baseline_or_judge(tmp_path):
    def board(baseline, votes):
        rows = [json.loads(line) for line in (DATA / votes).read_text().splitlines()]
        found = [
            {
                "id": f"{row['question_id']} {row['turn']} {number}",
                "preference": 2 if row.get(row["winner"]) == "claude-v1" else 1,
                "generator_1": baseline,
                "annotator": votes,
            }
            for number, row in enumerate(rows)
            if {row["model_a"], row["model_b"]} == {"claude-v1", baseline}
        ]
        assert len(found) > 50
        return written(tmp_path, f"{baseline} {votes}", found)

    one = board("gpt-3.5-turbo", "mtbench_gpt4_pair.jsonl")
    other = board("alpaca-13b", "mtbench_gpt4_pair.jsonl")
    assert "the baseline 'gpt-3.5-turbo'" in refusal(tmp_path, one, other)
    people = board("gpt-3.5-turbo", "mtbench_human.jsonl")
    assert "'mtbench_human.jsonl'" in refusal(tmp_path, one, people)
