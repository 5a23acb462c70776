"""A real child run: pairs derived anew, and a policy trained from them."""

import json

import pytest
from commands import call
from crashing import copied

pytestmark = pytest.mark.model

CHILD = "by-reward"


def test_a_policy_is_trained_from_pairs_derived_anew(real_lake, tmp_path):
    lake = copied(real_lake, tmp_path / "lake")
    rule = ("--rule", "top_reward", "--top-k", "1", "--name", "best")
    code, stdout, stderr = call(lake, "rederive", "tiny-rlrf", *rule)
    assert code == 0, stderr
    assert "best holds" in stdout
    given = ("--derived", "best", "--iteration", "1", "--run", CHILD)
    code, stdout, stderr = call(lake, "train", "tiny-rlrf", *given)
    assert code == 0, stderr
    assert "M_1" in stdout
    told = {name: status(lake, name) for name in ("tiny-rlrf", CHILD)}
    before, after = told[CHILD]["iterations"]
    begun, trained, _ = told["tiny-rlrf"]["iterations"]
    assert (before["checkpoint"], before["metrics"]) == (begun["checkpoint"], begun["metrics"])
    assert after["checkpoint"] not in (begun["checkpoint"], trained["checkpoint"])
    assert after["metrics"].keys() == trained["metrics"].keys()
    assert after["counts"]["pairs"] > 0
    code, _, stderr = call(lake, "resume", CHILD)
    assert code == 0, stderr
    assert status(lake, CHILD)["iterations"] == told[CHILD]["iterations"]


def status(lake, name):
    code, stdout, stderr = call(lake, "status", name, "--json")
    assert code == 0, stderr
    return json.loads(stdout)
