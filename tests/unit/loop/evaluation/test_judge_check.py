"""`lpfloop judge-check` reads the published forms of judgments and measures judges on them."""

import json

import pytest

from lpfloop.loop.evaluation.judge_check import check
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading, judgments_of
from lpfloop.loop.evaluation.judgments import collect

LONG, SHORT = "a long answer " * 5, "short"
LIST = "- one\n- two\n"


def alpaca(annotator, preference, *, instruction="Say it.", first=LONG, second=SHORT, **more):
    return {
        "instruction": instruction,
        "output_1": first,
        "output_2": second,
        "annotator": annotator,
        "preference": preference,
        **more,
    }


def write(path, rows):
    path.write_text(
        json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows))
    )
    return path


def read(lake, *sources):
    return collect(judgments_of([str(source) for source in sources], lake, JudgmentReading()))


def measured(lake, *sources, name):
    found = {each.name: each for each in check(read(lake, *sources))}
    return found[name]


def test_alpacaeval_and_alpacafarm(tmp_path):
    judges = write(
        tmp_path / "judge.jsonl",
        [alpaca("gpt", 1), alpaca("gpt", None), alpaca("gpt", 1.5), alpaca("gpt", 1.2)],
    )
    people = write(
        tmp_path / "people.json",
        [alpaca(None, 2, annotator_index=3, first=SHORT, second=LONG)],
    )
    found = read(tmp_path, judges, people)
    assert found.people.labels.tolist() == [[1, 0, 0]]
    assert found.judges[0].labels.tolist() == [[2, 0, 1]]
    assert found.judges[0].missing.sum() == 1


def test_annotator_may_be_an_object(tmp_path):
    path = write(tmp_path / "judge.jsonl", [alpaca({"name": "gpt", "seed": 1}, 1)])
    assert [votes.name for votes in read(tmp_path, path).judges] == ["gpt"]


def test_verdicts_in_both_orders(tmp_path):
    rows = [
        alpaca(who, vote, instruction=f"Q{number}", second=LIST, **order)
        for number, said in enumerate([("1", "1"), ("1", "2"), ("2", "2"), ("", "2")])
        for who, vote, order in (
            ("label:label", 2, {}),
            ("GPT", said[0], {"order": "as_given"}),
            ("GPT", said[1], {"order": "swapped"}),
        )
    ]
    path = write(tmp_path / "a.jsonl", rows)
    found = measured(tmp_path, path, name="GPT")
    assert (found.verdicts, found.unread) == (7, 1)
    assert found.measures["agreement"].value == pytest.approx(4 / 7)
    assert found.measures["both_orders"].value == pytest.approx(2 / 3)
    # Shown first: the first output as given, the second one swapped.
    assert found.measures["first_shown"].value == pytest.approx((2 + 3) / 7)
    assert found.measures["longer"].value == pytest.approx(3 / 7)
    assert found.measures["lists"].value == pytest.approx(4 / 7)
    people = measured(tmp_path, path, name="people")
    assert (people.verdicts, people.measures["lists"].value) == (4, 1)


def test_chosen_and_rejected_are_a_label(tmp_path):
    pairs = [{"prompt": "Say it.", "chosen": LIST, "rejected": LONG}]
    judged = [alpaca("gpt", 1, second=LIST)]
    files = write(tmp_path / "a.jsonl", pairs), write(tmp_path / "b.jsonl", judged)
    assert measured(tmp_path, *files, name="gpt").measures["agreement"].value == 0


def lossy():
    """Four pairs on which people agree; of the judge's replies on three, two are unreadable."""
    rows = [alpaca(f"human:{n}", 1, instruction=f"Q{q}") for q in range(4) for n in "ab"]
    given = ((0, 1), (1, 2), (2, None), (2, None), (3, 1))
    beside = alpaca("gpt", None, instruction="nobody judged this")
    return [*rows, *(alpaca("gpt", vote, instruction=f"Q{q}") for q, vote in given), beside]


def test_unread_bounds(tmp_path):
    found = measured(tmp_path, write(tmp_path / "a.json", lossy()), name="gpt")
    assert (found.unread, found.unread_share) == (3, 0.5)
    assert found.measures["agreement"].value == pytest.approx(2 / 3)
    # Two of the five replies on people's pairs were lost, the third on another pair.
    assert found.if_read == (pytest.approx(0.4), pytest.approx(0.8))
    people = measured(tmp_path, tmp_path / "a.json", name="people")
    assert (people.unread, people.if_read) == (0, None)
