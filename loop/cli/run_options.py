"""The options that describe a run, the same for every command that asks about one."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...configs.load import Override
    from ...configs.schema import RunConfig

ConfigName = Annotated[str | None, typer.Option("--config", help="Preset or YAML file.")]
Variant = Annotated[str | None, typer.Option(help="Recipe; see `lpfloop variants`.")]
Iterations = Annotated[int | None, typer.Option(min=0, help="Iterations to reach.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run.")]
PromptsFile = Annotated[str | None, typer.Option(help="Prompts: file, folder or hf:OWNER/NAME.")]
Policy = Annotated[str | None, typer.Option(help="Model to improve: folder or URL.")]
Critic = Annotated[str | None, typer.Option(help="Feedback model: folder or URL.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all random numbers.")]

OWN, TINY = "own", "tiny"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a command line says of a run; None is what it leaves to the preset."""

    config: str | None = None
    variant: str | None = None
    iterations: int | None = None
    prompts: str | None = None
    policy: str | None = None
    critic: str | None = None
    seed: int | None = None
    settings: Sequence[str] = ()

    @property
    def preset(self) -> str | None:
        """The preset or file: `own` where a model or prompts are named without one."""
        named = any(v is not None for v in (self.prompts, self.policy, self.critic))
        return OWN if self.config is None and named else self.config

    @property
    def stem(self) -> str:
        """What names of runs begin with."""
        return Path(self.preset or TINY).stem

    @property
    def overrides(self) -> "list[Override | str]":
        """What is laid over the preset, in order."""
        from ...configs.load import Override

        given = (
            Override(source="--iterations", path="iterations", value=self.iterations),
            Override(source="--prompts", path="prompts.source", value=self.prompts),
            Override(source="--policy", path="policy.model", value=self.policy),
            Override(source="--critic", path="critic.model", value=self.critic),
            Override(source="--seed", path="seed", value=self.seed),
        )
        return [*(o for o in given if o.value is not None), *self.settings]

    def resolved(self) -> "RunConfig":
        """Return the configuration that is meant.

        Raises:
            ConfigError: if the preset, the variant or a setting cannot be used.
        """
        from ...configs.load import load_config

        return load_config(self.preset, self.variant, self.overrides, os.environ)
