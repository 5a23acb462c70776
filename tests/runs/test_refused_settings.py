"""Bad settings of newer recipes: one sentence, exit code 2, and no files.

lpfloop refuses them before it makes a folder, opens a model or pays for a request.
"""

from pathlib import Path

from typer.testing import CliRunner
from world import write_prompts

from lpfloop.loop.cli.app import Exit, app

URL = "http://127.0.0.1:9/v1"
ENDPOINT = f"policy.model={URL}"
NAMED = ("policy.model=tiny", "critic.model=tiny")
NO_CRITIC, VERIFIED = "critic.model=none", "critic.kind=verifier"

BAD: dict[str, dict[str, tuple[str, ...]]] = {
    "self-rewarding": {
        "recipe.n: must be greater than or equal to 2": ("recipe.n=1",),
        "trains the policy's weights": (ENDPOINT,),
        "with recipe.judge=follows the policy is the judge": (f"critic.model={URL}",),
        "critic.kind is verifier": (VERIFIED, "critic.samples=1"),
        "unknown key 'recipe.m'; another recipe has it": ("recipe.m=3",),
    },
    "kto": {
        "needs a model for critic": (NO_CRITIC,),
        "training.kto.loss: must be": ("training.kto.loss=bco",),
    },
    "rlrf": {"rounds is 2, and m is 0": ("recipe.rounds=2", "recipe.m=0")},
    "grpo": {
        "all weights are 0": ("recipe.rewards.critic=0",),
        "has no critic": (VERIFIED,),
        "cannot judge answers to any train prompt": ("recipe.rewards.verifier=1",),
        "temperature is 0": ("policy.sampling.temperature=0",),
        "training.grpo.group: must be greater than": ("training.grpo.group=1",),
    },
    "critique-model": {"learns from a critic's replies": (VERIFIED,)},
    "online-dpo": {"trains its weights": (ENDPOINT,)},
}
"""By recipe: error messages, and settings that cause them."""


def test_bad_settings_are_refused(tmp_path: Path, subtests) -> None:
    lake = tmp_path / "lake"
    prompts = ("--prompts", str(write_prompts(tmp_path, 24)))
    for recipe, cases in BAD.items():
        for said, settings in cases.items():
            with subtests.test(recipe=recipe, settings=settings):
                options = [f"--set={setting}" for setting in (*NAMED, *settings)]
                where = ("--lake", str(lake), "--config", "tiny", "--recipe", recipe)
                told = CliRunner().invoke(app, ["run", *where, *prompts, *options])
                assert told.exit_code == Exit.BAD_INPUT, told.output
                assert said in told.stderr, told.stderr
                assert len(told.stderr.strip().splitlines()) == 1, told.stderr
                assert not lake.exists()
