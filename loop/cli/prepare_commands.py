"""`lpfloop prepare`: the models that a method begins with."""

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE, in_lake
from ..daemon.run_request import RunOptions
from .common import Lake, Settings
from .run_commands import refuse_secrets
from .run_options import ConfigName, Critic, Policy, PromptsFile, RunName

if TYPE_CHECKING:
    from ..daemon.job import Job

SMOL = "smol"
Method = Annotated[
    str, typer.Argument(help="A method (rlrf), or smol: a real model's weights.", metavar="WHAT")
]


def prepare(
    method: Method,
    *,
    config: ConfigName = None,
    name: RunName = None,
    lake: Lake = DEFAULT_LAKE,
    prompts: PromptsFile = None,
    policy: Policy = None,
    critic: Critic = None,
    settings: Settings = None,
) -> None:
    """Train M_0, critic and reward model for a method. `smol` fetches SmolLM2-135M-Instruct.

    --policy is the base model, --critic the teacher whose critiques and better answers are learned.
    Each recipe is a separate run with the recipe's name; the same command continues it.
    """
    from ..daemon.preparing import prepare as make
    from ..daemon.preparing import prepared_recipes
    from ..daemon.suite import Suite
    from ..lake.query.forms import FormError
    from ..run.terminal import say
    from ..smol.weights import prepare_weights
    from .session import stop_signal, turn

    if method == SMOL:
        if any((config, name, prompts, policy, critic, settings)):
            raise FormError("prepare smol only fetches weights: leave the options out")
        prepare_weights(say)
        say("run it with\n  lpfloop run --config smol --iterations 2")
        return
    options = RunOptions(
        config=config,
        prompts=prompts,
        policy=policy,
        critic=critic,
        settings=settings or (),
    )
    refuse_secrets(settings or ())
    options = options.in_lake(lake)
    suite = Suite(
        config=options.preset,
        recipes=prepared_recipes(method),
        seeds=(),
        lake=lake,
        prefix=name or options.stem,
        overrides=tuple(options.overrides),
        env=os.environ,
    )

    def work(job: "Job") -> None:
        turn(job, stop_signal(job.config, lift_pause=True))

    made = make(suite, work, say)
    words = ["lpfloop", "run", "--config", str(options.preset or "tiny")]
    words += ["--prompts", prompts] if prompts else []
    words += ["--policy", made.policy, "--critic", made.policy]
    words += ["--set", f"reward.model={made.reward}", "--set", "injection_guard=false"]
    say(f"made: run the method with\n  {shlex.join(words)}{in_lake(lake)}")
