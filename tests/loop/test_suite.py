"""Several variants from the same start: which, in which order, and what they share."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lpfloop
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.suite import chosen_variants
from lpfloop.loop.recipes import RECIPES
from lpfloop.stores.lake import RunReader, run_folder

ROOT = Path(__file__).parent.parent.parent
SHOWN = re.compile(r"^```sh suite\n(.*?)^```", re.MULTILINE | re.DOTALL)
FEW_STEPS = {
    "LPFLOOP_POLICY__ENGINE__KIND": "transformers",  # it starts sooner
    "LPFLOOP_PROMPTS__PER_ITERATION": "90",
    "LPFLOOP_PROMPTS__EVALUATED": "15",
    "LPFLOOP_PROMPTS__CHUNK": "15",
    "LPFLOOP_TRAINING__MIN_PAIRS": "4",
    "LPFLOOP_ASSESSMENT__KL": "false",
} | {
    f"LPFLOOP_TRAINING__{method}__{field}": "4"
    for method in ("SFT", "DPO", "REWARD", "PPO", "QUARK")
    for field in ("BATCH_SIZE", "MICRO_BATCH_SIZE")
}
FEW_STEPS |= {
    f"LPFLOOP_TRAINING__{method}__{field}": value
    for method in ("PPO", "QUARK")
    for field, value in (("ROLLOUTS", "8"), ("MAX_STEPS", "2"))
}
MINUTES = 15


def call(lake: Path, *arguments: str) -> tuple[int, str, str]:
    """Run a command where every training has a few steps."""
    done = subprocess.run(
        [sys.executable, "-m", "lpfloop", *arguments],
        env={**os.environ, **FEW_STEPS, "LPFLOOP_LAKE": str(lake)},
        capture_output=True,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def configured(lake: Path, name: str) -> str:
    """Return the reward model that a run was given."""
    run = RunReader(run_folder(lake, name))
    config = json.loads(run.journal.meta("config") or "{}")
    run.close()
    return str(config["reward"]["model"])


def test_all_are_alpacafarms_with_the_supervised_and_the_reward_model_first():
    everything = chosen_variants("all")
    assert everything[:2] == ("sft", "reward-model")
    others = {name for name in RECIPES if name.startswith(("ultrafeedback-", "chatglm-"))}
    assert set(everything) == set(RECIPES) - {"rlrf", "reward-only", "critique-model"} - others
    assert len(everything) == len(set(everything))


def test_named_variants_run_after_the_reward_model_that_they_share():
    assert chosen_variants(" ppo, dpo ,ppo") == ("reward-model", "ppo", "dpo")
    assert chosen_variants("rlrf,sft") == ("sft", "reward-model", "rlrf")


@pytest.mark.parametrize("text", ["", "alls", "dpo;ppo", "all,dpo"])
def test_an_unknown_variant_is_refused_with_those_that_there_are(text: str):
    with pytest.raises(ConfigError, match="best-of-n, expert-iteration, ppo"):
        chosen_variants(text)


@pytest.mark.parametrize(
    "more", [("--variant", "ppo"), ("--fork", "other"), ("--detach",)], ids=lambda m: m[0]
)
def test_what_means_one_run_does_not_go_with_several(tmp_path: Path, more: tuple[str, ...]):
    code, stdout, stderr = call(tmp_path / "lake", "run", "--variants", "all", *more)
    assert (code, stdout) == (2, "")
    assert more[0] in stderr
    assert not (tmp_path / "lake").exists()


@pytest.mark.model
def test_the_guides_commands_train_every_method_and_compare_them(tmp_path: Path):
    lake = tmp_path / "lake"
    shown = (ROOT / "docs" / "alpacafarm.md").read_text()
    (block,) = SHOWN.findall(shown)
    for line in block.splitlines():
        code, stdout, stderr = call(lake, *shlex.split(line, comments=True)[1:])
        assert code == 0, f"{line}: {stderr}"
        assert stdout
    made = {run.name for run in (lake / "runs").iterdir()}
    assert made == {f"tiny-{variant}-0" for variant in chosen_variants("all")}

    with lpfloop.open("tiny-reward-model-0", lake=lake) as first:
        compared = first.preferences(1).collect()
        reward = first.reward_models().collect()
    with lpfloop.open("tiny-dpo-0", lake=lake) as second:
        taken_over = second.preferences(1).collect()
    shared = taken_over.join(compared, on="preference_id", how="semi")
    assert shared.sort("preference_id").equals(compared.sort("preference_id"))
    assert len(taken_over) == len(compared) + int(FEW_STEPS["LPFLOOP_PROMPTS__EVALUATED"])
    with lpfloop.open("tiny-ppo-0", lake=lake) as ppo:
        scored = set(ppo.rewards(1).collect()["reward_model"])
        steps = ppo.rollouts().collect()["step"].unique().sort().to_list()
    with lpfloop.open("tiny-quark-0", lake=lake) as quark:
        assert set(quark.rewards(1).collect()["reward_model"]) == scored
    assert len(scored) == 1
    (made_once,) = reward["path"]
    assert configured(lake, "tiny-ppo-0").endswith(f"tiny-reward-model-0/{made_once}")
    assert steps == [1, 2]

    code, stdout, stderr = call(lake, "compare", *sorted(made), "--format", "jsonl")
    assert code == 0, stderr
    rows = [json.loads(line) for line in stdout.splitlines()]
    methods = [row["method"] for row in rows]
    assert set(methods) == set(chosen_variants("all")) - {"reward-model", "best-of-n"} | {
        "M_0",
        "best-of-64",
    }
    assert len(methods) == len(set(methods))
    weights = {row["checkpoint"] for row in rows if row["method"] != "best-of-64"}
    assert len(weights) == len(rows) - 1
