"""`lpfloop eval reward`: people's preferences as conversations, and a reward model's accuracy."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.configs.schema import RewardConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading
from lpfloop.loop.evaluation.preference_sets import read_preferences
from lpfloop.loop.evaluation.reward_accuracy import scores_of

pytestmark = pytest.mark.model


def written(folder, rows, name="given.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_both_sides_are_scored_by_the_model(tmp_path, tiny_reward):
    rows = [
        {"prompt": f"{n} + 1?", "chosen": f"Sure! It is {n}.", "rejected": f"Okay. {'no ' * n}"}
        for n in range(1, 7)
    ]
    path = written(tmp_path, rows)
    command = ["eval", "reward", "--reward", str(tiny_reward), "--preferences", str(path), "--json"]
    done = CliRunner().invoke(app, [*command, "--set", "reward.batch_size=4"])
    assert done.exit_code == Exit.DONE, done.output
    whole = json.loads(done.stdout)["tasks"][0]
    choices = read_preferences([path], JudgmentReading()).choices
    scores = scores_of(RewardConfig(), tiny_reward, choices)
    assert whole["accuracy"]["value"] == sum(a > b for a, b in scores) / 6
    assert whole["margin"] == pytest.approx(sum(a - b for a, b in scores) / 6, abs=1e-4)


def test_the_command_needs_a_model_and_files(tmp_path):
    path = written(tmp_path, [{"prompt": "x", "chosen": "a", "rejected": "b"}])
    for words, missing in (
        (["--preferences", str(path)], "reward"),
        (["--reward", "tiny"], "pref"),
        (["--reward", str(tmp_path / "gone"), "--preferences", str(path)], "reward"),
    ):
        done = CliRunner().invoke(app, ["eval", "reward", *words])
        assert done.exit_code == Exit.BAD_INPUT
        assert f"--{missing}" in done.stderr
