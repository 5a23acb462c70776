"""`lpfloop judge-check` tells agreement in wins, ties and losses, by task type."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.judge_agreement import AgreementQuestion, agreements
from lpfloop.loop.evaluation.judge_check import Settings
from lpfloop.loop.evaluation.judge_statistics import single_agreement
from lpfloop.loop.evaluation.judgment_formats import PEOPLE
from lpfloop.loop.evaluation.judgment_sources import judgments_of
from lpfloop.loop.evaluation.judgments import collect

FEW = Settings(draws=100)


def row(instruction, annotator, preference, **more):
    return {
        "instruction": instruction,
        "output_1": f"one of {instruction}",
        "output_2": f"two of {instruction}",
        "generator_1": "old",
        "generator_2": "new",
        "annotator": annotator,
        "preference": preference,
        **more,
    }


ROWS = [
    *(
        row("x", f"human:{name}", vote, kind="sums")
        for name, vote in zip("abc", (2, 2, 1), strict=True)
    ),
    *(
        row("y", f"human:{name}", vote, kind="tales")
        for name, vote in zip("abc", (1, 0, 1), strict=True)
    ),
    row("x", "gpt", 2),
    row("y", "gpt", 0),
    row("x", "claude", 2),
    row("y", "claude", 1),
    row("z", "gpt", 2),
]


def written(folder, rows=ROWS):
    path = folder / "judged.json"
    path.write_text(json.dumps(rows))
    return path


def found(folder, rows=ROWS, *, by=None, **asked):
    judgments = collect(judgments_of([str(written(folder, rows))], folder, PEOPLE, by=by))
    told = agreements(judgments, AgreementQuestion(**asked), FEW)
    return {(each.task, each.name): each for each in told}


def values(agreement, *names):
    return [None if (e := getattr(agreement, name)) is None else e.value for name in names]


def test_a_judge_stands_beside_single_people_their_majority_and_a_second_judge(tmp_path):
    told = found(tmp_path, second="claude")
    gpt, claude = told["all", "gpt"], told["all", "claude"]
    assert values(gpt, "person", "majority", "second") == [0.5, 0.5, 0.5]
    assert gpt.person.n == 2
    assert values(claude, "person", "majority", "second") == [pytest.approx(2 / 3), 1, None]
    people = told["all", "people"]
    thirds = [pytest.approx(share / 3) for share in (1, 1, 2)]
    assert values(people, "person", "majority", "second") == thirds


def test_the_field_that_is_named_gives_the_task_types(tmp_path):
    told = found(tmp_path, by="kind")
    assert list(dict.fromkeys(task for task, _ in told)) == ["all", "sums", "tales"]
    assert values(told["sums", "gpt"], "majority") == [1]
    assert values(told["tales", "gpt"], "majority") == [0]
    assert told["sums", "gpt"].majority.low is None


def test_each_pair_has_its_own_task_type_and_not_its_instruction_s(tmp_path):
    """Two pairs of one instruction of two kinds, the first of which is not the second's."""
    rows = [
        row("x", name, vote, output_2=f"two of {kind}", kind=kind)
        for kind, votes in (("easy", (1, 1)), ("hard", (1, 2)))
        for name, vote in zip(("human:a", "gpt"), votes, strict=True)
    ]
    told = found(tmp_path, rows, by="kind")
    assert values(told["easy", "gpt"], "majority") == [1]
    assert values(told["hard", "gpt"], "majority") == [0]


def test_a_pair_whose_rows_disagree_on_its_task_type_is_named(tmp_path):
    rows = [
        row("x", "human:a", 1, kind="sums"),
        row("x", "gpt", 1, kind="tales"),
        row("y", "gpt", 1, kind="tales"),
        row("z", "gpt", 1),
    ]
    path = written(tmp_path, rows)
    told = call(tmp_path, path, "--by", "kind", "--draws", "100")
    assert "1 pairs have rows that disagree on 'kind'" in told.stdout
    assert "('x': sums, tales)" in told.stdout
    assert "1 pairs have no 'kind'" in told.stdout
    whole = json.loads(call(tmp_path, path, "--by", "kind", "--draws", "100", "--json").stdout)
    assert whole["by"] == {
        "field": "kind",
        "pairs_without": 1,
        "disputed": [{"instruction": "x", "tasks": ["sums", "tales"]}],
    }
    tasks = {(each["task"], each["name"]): each for each in whole["agreements"]}
    assert tasks["all", "gpt"]["majority"]["n"] == 1
    assert tasks["tales", "gpt"]["majority"] is None


def test_a_judge_s_kappas_stand_by_task_type_and_with_a_second_judge(tmp_path):
    rows = [
        row(f"q{n}", name, vote, kind="all alike" if n < 2 else "mixed")
        for n, votes in enumerate([(1, 1, 1), (1, 1, 1), (1, 1, 2), (2, 2, 1), (2, 2, 2)])
        for name, vote in zip(("human:a", "gpt", "claude"), votes, strict=True)
    ]
    told = found(tmp_path, rows, by="kind", second="claude")
    assert values(told["mixed", "gpt"], "cohen") == [1]
    assert values(told["mixed", "claude"], "cohen") == [pytest.approx(-0.5)]
    assert values(told["mixed", "gpt"], "second_cohen") == [pytest.approx(-0.5)]
    assert values(told["all alike", "gpt"], "cohen") == [None]


def test_a_model_s_wins_are_counted_on_the_pairs_that_people_judged(tmp_path):
    told = found(tmp_path, model="new")
    assert values(told["all", "people"], "win", "tie", "lose") == [
        pytest.approx(share / 6) for share in (2, 1, 3)
    ]
    assert values(told["all", "gpt"], "win", "tie", "lose") == [0.5, 0.5, 0]
    assert told["all", "gpt"].win.n == 2
    assert values(found(tmp_path, model="old")["all", "gpt"], "win", "tie", "lose") == [0, 0.5, 0.5]


def test_who_is_not_there_is_told_with_those_who_are(tmp_path):
    with pytest.raises(InputError, match=r"--second gemini: .* the judges are claude, gpt"):
        found(tmp_path, second="gemini")
    with pytest.raises(InputError, match=r"--model newest: .* the models are new, old"):
        found(tmp_path, model="newest")


VOTES = st.lists(st.sampled_from([0, 1, 2]), max_size=4)


@given(st.lists(st.tuples(VOTES, VOTES), min_size=1, max_size=8))
def test_agreement_with_one_other_is_that_with_each_of_them_on_the_mean(pairs):
    counts, others = (
        np.array([[votes.count(label) for label in range(3)] for votes in side])
        for side in zip(*pairs, strict=True)
    )
    ratio = single_agreement(counts, others)
    wanted = sum(
        sum(mine == theirs for theirs in right) / len(right)
        for left, right in pairs
        for mine in left
        if right
    )
    assert math.isclose(ratio.numerator.sum(), wanted, abs_tol=1e-9)
    assert ratio.denominator.sum() == sum(len(left) for left, right in pairs if right)


# the command


def call(folder, *arguments):
    return CliRunner().invoke(app, ["judge-check", *map(str, arguments), "--lake", str(folder)])


def test_the_command_adds_agreement_where_it_is_asked_for(tmp_path):
    path = written(tmp_path)
    plain = call(tmp_path, path, "--draws", "100", "--json")
    assert "agreements" not in json.loads(plain.stdout)
    asked = ("--by", "kind", "--second", "gpt", "--model", "new", "--draws", "100")
    told = json.loads(call(tmp_path, path, *asked, "--json").stdout)["agreements"]
    assert {each["task"] for each in told} == {"all", "sums", "tales"}
    table = call(tmp_path, path, *asked)
    assert table.exit_code == Exit.DONE
    assert all(word in table.stdout for word in ("a person", "majority", "second", "wins"))


def test_a_field_that_no_row_has_is_refused(tmp_path):
    told = call(tmp_path, written(tmp_path), "--by", "mood")
    assert told.exit_code == Exit.BAD_INPUT
    assert "--by mood: no judgment has a field of this name" in told.stderr


def test_mt_bench_s_questions_name_the_task_types_of_its_judgments(tmp_path, shared_data):
    names = ("mtbench_human", "mtbench_gpt4_pair", "mtbench_question")
    files = [shared_data / f"{name}.jsonl" for name in names]
    told = call(tmp_path, *files, "--by", "category", "--model", "gpt-4", "--json")
    by_name = {(e["task"], e["name"]): e for e in json.loads(told.stdout)["agreements"]}
    assert len({task for task, _ in by_name}) == 9
    judge, people = by_name["all", "gpt4_pair"], by_name["all", "people"]
    assert 0.65 < judge["person"]["value"] < 0.75
    assert judge["lose"]["value"] < people["lose"]["value"]


def test_a_run_s_prompts_and_candidates_say_task_and_model(tmp_path):
    words = ("--as", "alpacafarm", "--default-task", "sums", "--run", "judged", "--lake", tmp_path)
    imported = CliRunner().invoke(app, ["import", str(written(tmp_path)), *map(str, words)])
    assert imported.exit_code == Exit.DONE, imported.output
    judgments = collect(judgments_of(["judged"], tmp_path, PEOPLE, by="task"))
    told = agreements(judgments, AgreementQuestion(model="new"), FEW)
    by_name = {(each.task, each.name): each for each in told}
    assert by_name["sums", "gpt"].win.value == 0.5
    assert {task for task, _ in by_name} == {"all", "sums"}
