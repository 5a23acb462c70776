"""`lpfloop run --paper`: each paper's main table from nothing, in a small tiny world."""

import pytest
from commands import start

from lpfloop.loop.daemon.papers import PAPERS

SMALL = (
    "prompts.evaluated=24",
    "prompts.deciding=24",
    "prompts.chunk=64",
    "training.min_pairs=4",
    "training.ppo.max_steps=2",
    "training.quark.max_steps=2",
    "report.each_iteration=false",
)
PROMPTS = {"rlrf": 64, "alpacafarm": 160, "ultrafeedback": 120, "chatglm": 120}
LIMIT_S = 1200


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("paper", PAPERS)
def test_the_main_table_of_a_paper_is_made_by_one_command(tmp_path, paper):
    settings = [
        f"--set={setting}" for setting in (*SMALL, f"prompts.per_iteration={PROMPTS[paper]}")
    ]
    process = start(tmp_path, "run", "--paper", paper, *settings)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, stderr
    heading = " ".join(stdout.split())
    for arm in PAPERS[paper]:
        if arm.recipe == "reward-model":
            continue  # It leaves the policy as it is, and so has no place of its own.
        assert arm.name in heading or f"{arm.name.removesuffix('-n')}-" in heading
    assert "Held-out prompts" in stdout
