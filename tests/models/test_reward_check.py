"""`lpfloop judge-check --reward`: a reward model as a judge of people's preferences."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.configs.schema import RewardConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judge_check import NAME, reward_judgments
from lpfloop.loop.evaluation.judgment_sources import JudgmentReading, file_judgments

pytestmark = pytest.mark.model


def written(folder, rows, name="given.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_reward_model_is_a_judge(tmp_path, tiny_reward):
    rows = [
        {"prompt": f"{n} + 1?", "chosen": f"Sure! It is {n}.", "rejected": f"Okay. {'no ' * n}"}
        for n in range(1, 7)
    ]
    path = written(tmp_path, rows)
    command = ["judge-check", str(path), "--reward", str(tiny_reward), "--json"]
    done = CliRunner().invoke(app, [*command, "--set", "reward.batch_size=4"])
    assert done.exit_code == Exit.DONE, done.output
    (judge,) = (row for row in json.loads(done.stdout) if row["kind"] == "judge")
    given = list(file_judgments(path, JudgmentReading()))
    won = [j.preferred == "first" for j in reward_judgments(given, RewardConfig(), tiny_reward)]
    assert (judge["annotator"], judge["verdicts"], judge["unread"]) == (NAME, 6, 0)
    assert judge["decided"] == sum(won) / 6


def test_unscorable_pair_is_unread(tmp_path, tiny_reward):
    rows = [{"prompt": "x", "chosen": "no " * 3000, "rejected": "yes"}]
    given = list(file_judgments(written(tmp_path, rows), JudgmentReading()))
    (judgment,) = reward_judgments(given, RewardConfig(max_length=64), tiny_reward)
    assert judgment.preferred is None


def test_reward_must_be_a_model(tmp_path):
    path = written(tmp_path, [{"prompt": "x", "chosen": "a", "rejected": "b"}])
    gone = ["--reward", str(tmp_path / "gone")]
    done = CliRunner().invoke(app, ["judge-check", str(path), *gone])
    assert done.exit_code == Exit.BAD_INPUT
    assert "--reward" in done.stderr
