"""Bad settings of the recipes since the papers: one sentence, exit code 2, and nothing written.

Whatever is refused is refused before a folder is made, a model opened or a request paid.
"""

from pathlib import Path

import pytest
from crashing import write_prompts
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app

URL = "http://127.0.0.1:9/v1"
ENDPOINT = f"policy.model={URL}"
COLD = "policy.sampling.temperature=0"
NAMED = ("policy.model=tiny", "critic.model=tiny")
NO_CRITIC, VERIFIED = "critic.model=none", "critic.kind=verifier"

GROUPS = ("grpo", "rloo", "online-dpo")
BAD: dict[str, dict[str, tuple[str, ...]]] = {
    "self-rewarding": {
        "recipe.n: must be greater than or equal to 2": ("recipe.n=1",),
        "recipe.judge: must be": ("recipe.judge=always",),
        "temperature is 0, so the answers": (COLD,),
        "trains the policy and asks what came of it": (ENDPOINT,),
        "with recipe.judge=follows the policy is the judge": (f"critic.model={URL}",),
        "an endpoint does not serve them": ("critic.engine.kind=openai",),
        "critic.kind is verifier": (VERIFIED, "critic.samples=1"),
        "no model is named as critic": (NO_CRITIC, "recipe.judge=frozen"),
        "unknown key 'recipe.m'; another variant has it": ("recipe.m=3",),
    },
    "kto": {
        "recipe.n: must be greater than or equal to 1": ("recipe.n=0",),
        "no model is named as critic": (NO_CRITIC,),
        "training.kto.beta: must be": ("training.kto.beta=0",),
        "training.kto.loss: must be": ("training.kto.loss=bco",),
        "training.kto.desirable_weight: must be": ("training.kto.desirable_weight=-1",),
    },
    "critique-distillation": {
        "recipe.m: must be greater than or equal to 1": ("recipe.m=0",),
        "recipe.learn: must be": ("recipe.learn=failed",),
        "no model is named as critic": (NO_CRITIC,),
    },
    "rlrf": {
        "recipe.rounds: must be greater than or equal to 1": ("recipe.rounds=0",),
        "rounds is 2, and m is 0": ("recipe.rounds=2", "recipe.m=0"),
        "no model is named as critic": (NO_CRITIC, "recipe.rounds=2"),
    },
    **{
        name: {
            "all weights are 0": ("recipe.rewards.critic=0",),
            "no model is named as critic": (NO_CRITIC,),
            "has no critic": (VERIFIED,),
            "recipe.rewards.reward is 1, and reward.model is none": (
                "recipe.rewards.reward=1",
                "reward.model=none",
            ),
            "has no verdict on answers to any train prompt": ("recipe.rewards.verifier=1",),
            "temperature is 0": (COLD,),
            "top_p is 0.9": ("policy.sampling.top_p=0.9",),
            f"training.{name.replace('-', '_')}.group: must be greater than or equal to 2": (
                f"training.{name.replace('-', '_')}.group=1",
            ),
            "trains its weights": (ENDPOINT,),
        }
        for name in GROUPS
    },
}
"""By recipe: what is said of some settings."""
CASES = [(name, said, bad) for name, cases in BAD.items() for said, bad in cases.items()]


@pytest.mark.parametrize(("variant", "said", "settings"), CASES)
def test_bad_settings_are_refused_in_a_sentence_before_anything_is_written(
    tmp_path: Path, variant: str, said: str, settings: tuple[str, ...]
) -> None:
    lake = tmp_path / "lake"
    prompts = ("--prompts", str(write_prompts(tmp_path, 24)))
    options = [word for setting in (*NAMED, *settings) for word in ("--set", setting)]
    where = ("--lake", str(lake), "--config", "tiny", "--variant", variant)
    told = CliRunner().invoke(app, ["run", *where, *prompts, *options])
    assert told.exit_code == Exit.BAD_INPUT, told.output
    assert said in told.stderr, told.stderr
    assert len(told.stderr.strip().splitlines()) == 1, told.stderr
    assert not lake.exists()
