"""Asking a run's critic again about some of its answers, with or without the reference.

The critiques lie in a run of their own, beside the loop, as those of `lpfloop critique`: what was
asked is re-used, whatever ended it before.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...configs.load import stored_config
from ...configs.schema import ConfigError, RunConfig
from ...stores.lake import RunReader
from ..lake.imports.run_answers import run_answers
from .critique_run import critique_config, name_of
from .job import Job


def other_way(run: RunReader, *, reference: bool) -> RunConfig:
    """Return the configuration of the run's critic that does, or does not, see the reference.

    Raises:
        ConfigError: if no model rates, or it is asked in this way already.
    """
    config = stored_config(json.loads(run.journal.meta("config") or "{}"), (), os.environ)
    critic, name = config.critic, run.folder.name
    if critic.kind == "verifier":
        raise ConfigError(
            f"the critic of run {name} is the verifier: there is no model that could be asked with "
            "and without the reference"
        )
    if critic.use_reference == reference:
        way, other = ("with", "without") if reference else ("without", "with")
        raise ConfigError(
            f"the critic of run {name} is asked {way} the reference already "
            f"(critic.use_reference={json.dumps(reference)}): ask it again with "
            f"--{other}-reference"
        )
    if not critic.task_aspects:
        raise ConfigError(f"the critic of run {name} reads no references: it has no task_aspects")
    changed = critic.model_copy(update={"kind": "feedback", "use_reference": reference})
    return critique_config(config.model_copy(update={"critic": changed}))


def recritique_job(run: RunReader, lake: Path, ids: Sequence[str], config: RunConfig) -> Job:
    """Return the job of critiquing these answers of a run by a configuration of `other_way`.

    Raises:
        ConfigError: if the critic cannot be used.
    """
    way = "with" if config.critic.use_reference else "without"
    answers = run_answers(run, ids, f"{way} reference")
    return Job(config=config, lake=lake, name=name_of(answers, config), answers=answers)
