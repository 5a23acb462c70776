"""`lpfloop eval reward`: people's preferences as conversations, and a reward model's accuracy."""

import json

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading
from lpfloop.loop.evaluation.preference_sets import ChosenPair, read_preferences
from lpfloop.loop.evaluation.reward_accuracy import accuracies
from lpfloop.stores.records import Message


def written(folder, rows, name="given.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder, *rows, by=None):
    return read_preferences([written(folder, rows)], JudgmentReading(by=by))


def said(choice):
    return [(m.role, m.content) for m in choice.better], [m.content for m in choice.worse][-1]


def judged(*votes, **more):
    texts = {"instruction": "Sum up.", "input": "a", "output_1": "one", "output_2": "two", **more}
    return [
        {**texts, "annotator": name, "preference": vote}
        for name, vote in [*((f"human:{n}", v) for n, v in enumerate(votes)), ("gpt", 1)]
    ]


def turn(*texts):
    roles = ("user", "assistant") * len(texts)
    return [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]


def test_the_majority_of_people_decides(tmp_path):
    (choice,) = read(tmp_path, *judged(2, 2, 1)).choices
    assert said(choice) == ([("user", "Sum up.\n\na"), ("assistant", "two")], "one")
    assert choice.task == "given"


def test_ties_are_left_out_and_counted(tmp_path):
    for votes in [(0, 0, 1), (1, 2, 0), (1, 2)]:
        found = read(tmp_path, *judged(*votes), *judged(1, instruction="Go on."))
        assert (len(found.choices), found.tied) == (1, 1)


def test_votes_on_a_pair_count_together(tmp_path):
    alpaca = {"instruction": "x", "output_1": "a", "output_2": "b", "annotator": "human:1"}
    turned = {**alpaca, "output_1": "b", "output_2": "a", "annotator": "human:2"}
    found = read(
        tmp_path,
        {**alpaca, "preference": 1},
        {**turned, "preference": 2},
        {**alpaca, "annotator": "human:3", "preference": 2},
        {**alpaca, "annotator": "gpt", "preference": 2},
    )
    (choice,) = found.choices
    assert choice.better[-1].content == "a"


def test_chosen_and_rejected_forms(tmp_path):
    found = read(
        tmp_path,
        {"prompt": "x", "chosen": "a", "rejected": "b", "metadata": {"score_chosen": 9.0}},
        {"prompt": "y", "chosen": turn("y", "c"), "rejected": turn("y", "d")},
        {"prompt": "z", "chosen": "e", "rejected": "f", "score_chosen": 5, "score_rejected": 5},
    )
    assert [said(choice)[0] for choice in found.choices] == [
        [("user", "x"), ("assistant", "a")],
        [("user", "y"), ("assistant", "c")],
    ]
    assert found.tied == 1


def test_unusable_rows_are_refused_by_line(tmp_path, subtests):
    for row, reason in [
        ({"text": "x"}, "is in no known format"),
        (judged(7)[0], "'preference' must be"),
        ({"chosen": "a", "rejected": "b"}, "no prompt"),
    ]:
        with subtests.test(reason=reason), pytest.raises(InputError, match=f"line 1: .*{reason}"):
            read(tmp_path, row)


def test_a_field_names_the_task_type(tmp_path):
    (choice,) = read(tmp_path, *judged(1, app="Grammarly"), by="app").choices
    assert choice.task == "Grammarly"
    with pytest.raises(InputError, match="'mood'"):
        read(tmp_path, *judged(1), by="mood")


def choice(instruction, task):
    better, worse = (
        (Message(role="user", content=instruction), Message(role="assistant", content=text))
        for text in ("good", "bad")
    )
    return ChosenPair(better=better, worse=worse, task=task)


def test_accuracy_overall_and_by_task():
    choices = [choice(f"x{n}", task) for n, task in enumerate("aaabb")]
    scores = [(1.0, 0.0), (0.0, 0.0), (0.0, 2.0), (3.0, 1.0), (None, 1.0)]
    whole, first, second = accuracies(choices, scores)
    assert [r.task for r in (whole, first, second)] == ["all", "a", "b"]
    assert whole.accuracy.value == 2.5 / 4
    assert whole.accuracy.low <= 2.5 / 4 <= whole.accuracy.high
    assert (whole.choices, whole.unscored) == (5, 1)
    assert first.accuracy.value == 0.5
    assert first.margin == pytest.approx(-1 / 3)
    assert (second.accuracy.value, second.unscored) == (1, 1)
