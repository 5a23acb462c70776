"""A real child run: derived pairs, and a policy trained from them."""

import json
from contextlib import closing

import pytest
from processes import call_command
from world import copied

from lpfloop.loop.lake.query.runs import open_run

pytestmark = [pytest.mark.model, pytest.mark.slow]

CHILD = "by-reward"


def test_train_from_derived_pairs(real_lake, tmp_path):
    lake = copied(real_lake, tmp_path / "lake")
    rule = ("--rule", "top_reward", "--top-k", "1", "--name", "best")
    code, stdout, stderr = call_command(lake, "rebuild-pairs", "tiny-rlrf", *rule)
    assert code == 0, stderr
    assert "best holds" in stdout
    given = ("--derived", "best", "--iteration", "1", "--run", CHILD)
    code, stdout, stderr = call_command(lake, "train", "tiny-rlrf", *given)
    assert code == 0, stderr
    assert "M_1" in stdout
    told = {name: status(lake, name) for name in ("tiny-rlrf", CHILD)}
    before, after = told[CHILD]["iterations"]
    begun, trained, _ = told["tiny-rlrf"]["iterations"]
    assert (before["checkpoint"], before["metrics"]) == (begun["checkpoint"], begun["metrics"])
    assert after["checkpoint"] not in (begun["checkpoint"], trained["checkpoint"])
    assert after["metrics"].keys() == trained["metrics"].keys()
    assert after["counts"]["pairs"] > 0
    code, _, stderr = call_command(lake, "resume", CHILD)
    assert code == 0, stderr
    assert status(lake, CHILD)["iterations"] == told[CHILD]["iterations"]
    few = ("--set", "training.reward.epochs=1", "--run", "rewarded")
    code, _, stderr = call_command(lake, "train", "tiny-rlrf", *given[:4], "--reward", *few)
    assert code == 0, stderr
    with closing(open_run(lake, "rewarded")) as run:
        assert run.scan("reward_models").collect().height == 1
        assert run.scan("checkpoints").collect()["checkpoint_id"].n_unique() == 1


def status(lake, name):
    code, stdout, stderr = call_command(lake, "status", name, "--json")
    assert code == 0, stderr
    return json.loads(stdout)
