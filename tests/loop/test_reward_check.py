"""`lpfloop eval reward`: people's preferences as conversations, and how a reward model does."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.configs.schema import RewardConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.judgment_formats import PEOPLE
from lpfloop.loop.evaluation.preference_sets import ChosenPair, read_preferences
from lpfloop.loop.evaluation.reward_accuracy import accuracies, scores_of
from lpfloop.stores.records import Message


def written(folder, rows, name="given.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(folder, *rows, by=None):
    return read_preferences([written(folder, rows)], PEOPLE, by=by)


def said(choice):
    return [(m.role, m.content) for m in choice.better], [m.content for m in choice.worse][-1]


def pandalm(*votes):
    people = {f"annotator{n}": vote for n, vote in enumerate(votes, start=1)}
    texts = {"instruction": "Sum up.", "input": "a", "response1": "one", "response2": "two"}
    return {**texts, **people, "gpt_result": "1"}


def turn(*texts):
    roles = ("user", "assistant") * len(texts)
    return [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]


# what people prefer


def test_the_majority_of_people_decides_and_no_judge(tmp_path):
    (choice,) = read(tmp_path, pandalm(2, 2, 1)).choices
    assert said(choice) == ([("user", "Sum up.\n\na"), ("assistant", "two")], "one")
    assert choice.task == "given"


@pytest.mark.parametrize("votes", [(0, 0, 1), (1, 2, 0), (1, 2)])
def test_a_tie_or_a_split_vote_is_left_out_and_counted(tmp_path, votes):
    other = {**pandalm(1), "instruction": "Go on."}
    found = read(tmp_path, pandalm(*votes), other)
    assert (len(found.choices), found.tied) == (1, 1)


def test_votes_on_a_pair_count_together_whichever_answer_is_named_first(tmp_path):
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


def test_chosen_and_rejected_may_be_texts_or_conversations_with_scores(tmp_path):
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


def test_mt_bench_is_scored_up_to_the_turn_that_was_judged(tmp_path):
    row = {
        "question_id": 1,
        "model_a": "m",
        "model_b": "n",
        "winner": "model_b",
        "judge": "expert_1",
        "turn": 1,
        "conversation_a": turn("x", "a", "more", "aa"),
        "conversation_b": turn("x", "b", "more", "bb"),
    }
    first, second = read(tmp_path, row, {**row, "turn": 2}).choices
    assert said(first) == ([("user", "x"), ("assistant", "b")], "a")
    assert [m.content for m in second.better] == ["x", "b", "more", "bb"]


def test_llmbar_s_label_is_people_s(tmp_path):
    row = {"input": "x", "output_1": "a", "output_2": "b", "label": 2}
    (choice,) = read(tmp_path, row).choices
    assert said(choice) == ([("user", "x"), ("assistant", "b")], "a")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"instruction": "x"}, "its fields match no format"),
        ({**pandalm(7)}, "must be 0, 1 or 2"),
        ({"chosen": "a", "rejected": "b"}, "'prompt' must be a text"),
        (
            {
                "question_id": 1,
                "model_a": "m",
                "model_b": "n",
                "winner": "model_a",
                "judge": "author_1",
            },
            "'conversation_a' must be the conversation that was judged",
        ),
    ],
)
def test_what_can_not_be_scored_is_refused_with_its_line(tmp_path, row, reason):
    with pytest.raises(InputError, match=f"given.jsonl, line 1: .*{reason}"):
        read(tmp_path, row)


def test_a_row_unlike_the_first_is_refused_with_its_line(tmp_path):
    row = {"input": "x", "output_1": "a", "output_2": "b", "label": 2}
    for wrong, reason in (
        ({"input": "y"}, "has no field 'label'"),
        ({**row, "label": 7}, "1 or 2"),
    ):
        with pytest.raises(InputError, match=f"line 2: .*{reason}"):
            read(tmp_path, row, wrong)


def test_verdicts_without_texts_are_refused(tmp_path):
    fields = ("subset", "idx", "llm", "strategy", "label", "winner_order1", "winner_order2")
    with pytest.raises(InputError, match="come without the texts"):
        read(tmp_path, dict.fromkeys(fields, "1"))


def test_files_without_people_are_refused(tmp_path):
    row = {"instruction": "x", "output_1": "a", "output_2": "b", "preference": 1}
    with pytest.raises(InputError, match="no person prefers one answer to another"):
        read(tmp_path, {**row, "annotator": "gpt"})


def test_a_field_names_the_task_type(tmp_path):
    row = {**pandalm(1), "motivation_app": "Grammarly"}
    (choice,) = read(tmp_path, row, by="motivation_app").choices
    assert choice.task == "Grammarly"
    with pytest.raises(InputError, match="'mood' must be a text"):
        read(tmp_path, pandalm(1), by="mood")


# how a reward model does


def choice(instruction, task):
    better, worse = (
        (Message(role="user", content=instruction), Message(role="assistant", content=text))
        for text in ("good", "bad")
    )
    return ChosenPair(better=better, worse=worse, task=task)


def test_accuracy_is_told_of_all_and_by_task_type():
    choices = [choice(f"x{n}", task) for n, task in enumerate("aaabb")]
    scores = [(1.0, 0.0), (0.0, 0.0), (0.0, 2.0), (3.0, 1.0), (None, 1.0)]
    whole, first, second = accuracies(choices, scores, draws=200)
    assert [r.task for r in (whole, first, second)] == ["all", "a", "b"]
    assert whole.accuracy.value == 2.5 / 4
    assert whole.accuracy.low <= 2.5 / 4 <= whole.accuracy.high
    assert (whole.choices, whole.unscored) == (5, 1)
    assert first.accuracy.value == 0.5
    assert first.margin == pytest.approx(-1 / 3)
    assert (second.accuracy.value, second.unscored) == (1, 1)


def test_what_was_not_scored_has_no_accuracy():
    (whole, only) = accuracies([choice("x", "a")], [(None, None)])
    assert (whole.accuracy, whole.margin, only.unscored) == (None, None, 1)


@pytest.mark.model
def test_the_command_scores_both_sides_by_the_model_itself(tmp_path, tiny_reward):
    rows = [
        {"prompt": f"{n} + 1?", "chosen": f"Sure! It is {n}.", "rejected": f"Okay. {'no ' * n}"}
        for n in range(1, 7)
    ]
    path = written(tmp_path, rows)
    command = ["eval", "reward", "--reward", str(tiny_reward), "--preferences", str(path), "--json"]
    done = CliRunner().invoke(app, [*command, "--set", "reward.batch_size=4"])
    assert done.exit_code == Exit.DONE, done.output
    whole = json.loads(done.stdout)["tasks"][0]
    choices = read_preferences([path], PEOPLE).choices
    scores = scores_of(RewardConfig(), tiny_reward, choices)
    assert whole["accuracy"]["value"] == sum(a > b for a, b in scores) / 6
    assert whole["margin"] == pytest.approx(sum(a - b for a, b in scores) / 6, abs=1e-4)


def test_the_command_needs_a_model_and_files(tmp_path):
    path = written(tmp_path, [pandalm(1)])
    for words, missing in (
        (["--preferences", str(path)], "reward"),
        (["--reward", "tiny"], "pref"),
    ):
        done = CliRunner().invoke(app, ["eval", "reward", *words])
        assert done.exit_code == Exit.BAD_INPUT
        assert f"--{missing}" in done.stderr


def test_a_folder_without_a_model_is_refused(tmp_path):
    path = written(tmp_path, [pandalm(1)])
    words = ["--reward", str(tmp_path / "gone"), "--preferences", str(path)]
    done = CliRunner().invoke(app, ["eval", "reward", *words])
    assert done.exit_code == Exit.BAD_INPUT
    assert "--reward: " in done.stderr
