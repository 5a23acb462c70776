"""`lpfloop judge-check` reports agreement in wins, ties and losses, by task type."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judge_check import check
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading, judgments_of
from lpfloop.loop.evaluation.judgments import collect


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
    sources = [str(written(folder, rows))]
    judgments = collect(judgments_of(sources, folder, JudgmentReading(by=by)))
    told = check(judgments, **asked)
    return {(each.task, each.name): each for each in told}


def values(agreement, *names):
    return [None if (e := agreement.measures.get(name)) is None else e.value for name in names]


def test_judge_compared_with_people(tmp_path):
    told = found(tmp_path, second="claude")
    gpt, claude = told["all", "gpt"], told["all", "claude"]
    assert values(gpt, "person", "agreement", "second") == [0.5, 0.5, 0.5]
    assert gpt.measures["person"].n == 2
    assert values(claude, "person", "agreement", "second") == [pytest.approx(2 / 3), 1, None]
    people = told["all", "people"]
    thirds = [pytest.approx(share / 3) for share in (1, 1, 2)]
    assert values(people, "person", "held_out", "second") == thirds


def test_kappas_by_task(tmp_path):
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


def test_wins_on_pairs_people_judged(tmp_path):
    told = found(tmp_path, model="new")
    assert values(told["all", "people"], "win", "tie", "lose") == [
        pytest.approx(share / 6) for share in (2, 1, 3)
    ]
    assert values(told["all", "gpt"], "win", "tie", "lose") == [0.5, 0.5, 0]
    assert told["all", "gpt"].measures["win"].n == 2
    assert values(found(tmp_path, model="old")["all", "gpt"], "win", "tie", "lose") == [0, 0.5, 0.5]


def test_command_adds_agreement(tmp_path):
    asked = ("--by", "kind", "--second", "gpt", "--model", "new")
    command = ["judge-check", str(written(tmp_path)), *asked, "--lake", str(tmp_path)]
    told = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert {each["task"] for each in told} == {"all", "sums", "tales"}
    table = CliRunner().invoke(app, [*command, "--format", "table"])
    assert table.exit_code == Exit.DONE
    assert "a person" in table.stdout
