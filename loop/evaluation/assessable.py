"""Checks that a run's prompts can be assessed as it is configured, before anything is paid."""

from collections.abc import Iterable, Sequence

from ...configs.annotation import of_eval_set
from ...configs.mistakes import list_names
from ...configs.schema import ConfigError, RunConfig
from ...critics.facts.fact_score import is_matchable
from ...critics.verify import SENTENCE_MATCH, is_factual
from ...stores.records import Prompt
from ..run.models import is_endpoint
from .assess import load_oracle
from .measure_scores import require_scorable
from .reference_outputs import require_outputs


def require_assessable(config: RunConfig, held_out: Sequence[Prompt]) -> None:
    """Refuse an assessment that is not possible on these prompts.

    Raises:
        ConfigError: naming the setting.
        InputError: if the file of reference outputs cannot be used.
    """
    assessment = config.assessment
    _require_known_sets(config, held_out)
    require_scorable(config, held_out)
    for eval_set in sorted({prompt.eval_set or "" for prompt in held_out}):
        own = [prompt for prompt in held_out if (prompt.eval_set or "") == eval_set]
        if (reference := of_eval_set(assessment.reference, eval_set)) is not None:
            require_outputs(reference, own)
    if assessment.oracle is not None:
        _require_knowing(assessment.oracle, held_out)
    if assessment.kl and is_endpoint(config.policy.model):
        raise ConfigError(
            "assessment.kl needs the probability of given answers, which an endpoint does not "
            "return: leave it out, or name a folder in policy.model"
        )


def _require_known_sets(config: RunConfig, held_out: Sequence[Prompt]) -> None:
    """Refuse a setting by sets of held-out prompts that the run does not have."""
    known = sorted({prompt.eval_set for prompt in held_out if prompt.eval_set is not None})
    assessment = config.assessment
    settings = {
        "reference": assessment.reference,
        "scores": assessment.scores,
    }
    for name, value in settings.items():
        others = (
            [eval_set for eval_set in value if eval_set not in known]
            if isinstance(value, dict)
            else []
        )
        if others:
            there = f"names {list_names(known)}" if known else "names no sets"
            raise ConfigError(
                f"assessment.{name} is about the set {others[0]!r}, but prompts.held_out {there}"
            )
        if isinstance(value, dict) and hasattr(config.recipe, "most"):
            raise ConfigError(
                f"assessment.{name} differs from set to set, but {config.recipe.name} compares its "
                "best answers to all of them at once: give it one place"
            )


def require_matchable(config: RunConfig, prompts: Iterable[Prompt]) -> None:
    """Refuse to judge facts by equal sentences if references are not the tiny world's.

    Raises:
        ConfigError: naming the setting, and the source of such prompts.
    """
    if config.facts.judge != SENTENCE_MATCH:
        return
    foreign = (p.source for p in prompts if is_factual(p) and not is_matchable(p))
    if (source := next(foreign, None)) is not None:
        raise ConfigError(
            f"facts.judge={SENTENCE_MATCH} compares sentences with the tiny world's abstracts, and "
            f"there are facts of {source!r}: set facts.judge to critic or none"
        )


def _require_knowing(path: str, prompts: Sequence[Prompt]) -> None:
    oracle = load_oracle(path)
    try:
        for prompt in prompts:
            oracle(prompt.instruction, "")
    except LookupError as error:
        raise ConfigError(f"assessment.oracle {path!r} does not know a prompt: {error}") from error
