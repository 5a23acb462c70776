"""Who judges facts in a run: nobody, unless a model is there to break up and compare statements."""

from ...configs.schema import RunConfig
from ...critics.facts.fact_judge import FactJudge
from .models import CRITIC, Models


def fact_judge_of(config: RunConfig, models: Models) -> FactJudge | None:
    """Return what the judge of facts is asked; None for a run whose facts have no judge.

    Raises:
        ConfigError: if its templates cannot be used.
    """
    judges = config.facts.judge in ("critic", "nli") and CRITIC in models.judging
    return FactJudge.from_config(config.facts) if judges else None
