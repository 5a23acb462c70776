"""The options of a run, from the command line or Python, from which its configuration is made."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...configs.load import ConfigSource, Override
    from ...configs.schema import RunConfig

OWN, TINY, VERIFIER = "own", "tiny", "verifier"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a command line; None leaves a setting to the preset."""

    config: "ConfigSource | None" = None
    recipe: str | None = None
    iterations: int | None = None
    prompts: str | None = None
    policy: str | None = None
    critic: str | None = None
    seed: int | None = None
    settings: "Sequence[str | Override]" = ()
    download: bool = False

    @property
    def preset(self) -> "ConfigSource | None":
        """The preset or file: by default `own` if there are options for a model or prompts."""
        named = any(v is not None for v in (self.prompts, self.policy, self.critic))
        return OWN if self.config is None and named else self.config

    @property
    def describes_a_run(self) -> bool:
        """Whether options or the environment set models, prompts, recipe or settings.

        Raises:
            ConfigError: if a variable of the environment cannot be read.
        """
        from ...configs.load import from_environment

        named = (self.config, self.recipe, self.prompts, self.policy, self.critic)
        given = any(value is not None for value in named) or bool(self.settings)
        outside = {found.path.partition(".")[0] for found in from_environment(os.environ)}
        return given or not outside.isdisjoint(("policy", "prompts", "critic", "models"))

    @property
    def stem(self) -> str:
        """The prefix of names of runs."""
        preset = self.preset or TINY
        named = preset if isinstance(preset, str) else preset.get("extends", OWN)
        return Path(str(named)).stem

    def name_of(self, config: "RunConfig") -> str:
        """Return the run's default name."""
        from ...configs.recipe_names import short_name

        return f"{self.stem}-{short_name(config.recipe.name)}"

    @property
    def overrides(self) -> "list[Override | str]":
        """The settings laid over the preset, in order."""
        from ...configs.load import Override

        given = (
            Override(source="--iterations", path="iterations", value=self.iterations),
            Override(source="--prompts", path="prompts.source", value=self.prompts),
            Override(source="--policy", path="policy.model", value=self.policy),
            *critic_overrides(self.critic),
            Override(source="--seed", path="seed", value=self.seed),
        )
        return [*(o for o in given if o.value is not None), *self.settings]

    def in_lake(self, lake: Path) -> "RunOptions":
        """Return the options with the folders of the models that are called `RUN:M_2`.

        Raises:
            DamagedError, NoSuchFigureError, NoSuchRunError: as `model_folder`.
        """
        policy, critic = model_folder(lake, "policy", self.policy), self.critic
        same = critic is not None and critic == self.policy
        critic = policy if same else model_folder(lake, "critic", critic)
        return replace(self, policy=policy, critic=critic)

    def load(self) -> "RunConfig":
        """Return the configuration; the files and models that it names may be missing.

        Raises:
            ConfigError: if the preset, the recipe or a setting is invalid.
        """
        from ...configs.load import load_config

        return load_config(self.preset, self.recipe, self.overrides, os.environ)

    def resolve(self) -> "RunConfig":
        """Return the configuration, with the commits of its models and data on the hub.

        With `download`, files missing in the hub's cache are downloaded first.

        Raises:
            ConfigError: if the preset, the recipe or a setting is invalid.
        """
        from ..run.served import hub_names, pin_hub_names

        loaded = self.load()
        if self.download:
            from ..run.served import fetch

            fetch(hub_names(loaded))
        return pin_hub_names(loaded)


def critic_overrides(critic: str | None) -> "list[Override]":
    """Return the settings that `--critic` means: a model, the verifier, or your own function."""
    from ...configs.load import Override
    from ...configs.own_function import names_function

    if critic is None:
        return []
    values = {"model": critic}
    if critic == VERIFIER:
        values = {"kind": VERIFIER}
    elif names_function(critic):
        values = {"kind": VERIFIER, "verifier": critic}
    return [
        Override(source="--critic", path=f"critic.{name}", value=value)
        for name, value in values.items()
    ]


def model_folder(lake: Path, role: str, place: str | None) -> str | None:
    """Return a model's place; for a run's model its folder, every byte of it compared.

    Raises:
        DamagedError: if it is damaged.
        NoSuchFigureError: if no measured figure decides the best model.
        NoSuchRunError: if the run or model does not exist, or its weights are not here.
    """
    from ..lake.query.model_names import model_name, model_of
    from ..lake.query.runs import open_run
    from ..lake.trace.published_model import configuration, verified_model
    from ..run.iteration import control_of
    from ..run.terminal import say

    called = None if place is None or Path(place).exists() else model_name(place)
    if called is None or called.run is None:
        return place
    with closing(open_run(lake, called.run)) as run:
        checkpoint = model_of(run, called.which)
        folder = verified_model(run, checkpoint).absolute()
        control = control_of(configuration(run), checkpoint)
    say(f"--{role} {place} is {checkpoint.name}, in {folder}, every byte compared")
    if control:
        say(f"--{role} {place} learned to answer behind {control!r}, which is left out here")
    return str(folder)
