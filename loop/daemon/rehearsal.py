"""A rehearsal: a run's own recipe over a few of its prompts, with stand-ins for costly parts.

Everything else is real: verbs, templates, filters, chunks, the journal, in a folder that is gone
afterwards. No model is opened, no endpoint is called. The requests of each stage are recorded; they
predict the requests of the whole run (`plan`) and show their content (`preview`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ...configs.group_methods import OnlineSettings
from ...configs.own_function import names_function
from ...configs.recipes import Pooled, Scheduled
from ...configs.schema import BudgetConfig, ConfigError, RunConfig
from ...policies.trainers.job import ONLINE
from ...stores.records import Prompt
from ..data.prompts import LABELLED
from ..data.splits import PARTS, laid_out
from ..recipes.roles import needed_roles, require_named
from ..run.completers import completes
from ..run.labels import Labels
from ..run.models import NO_MODEL, REWARD
from ..run.observed import Observed
from ..run.outcomes import NothingToTrainOn
from ..stages.complete import COMPLETE
from ..stages.people_labels import TAKE_LABELS
from ..stages.supervised_set import STAGE as SUPERVISED
from ..stages.supervised_set import read_supervised, source_of
from .call_costs import CallCosts
from .iterations import turn
from .prompt_sample import PromptGroup, PromptSample, sample_prompts
from .rehearsed_run import RehearsedRun, opened_rehearsal
from .stand_ins import LONGEST_REPLY, RehearsedStage

ITERATIONS, OWN_ITERATIONS = 2, 8
"""The rehearsed iterations at least, and of a user's recipe, which may do something else in each.

Later iterations repeat the last of them.
"""
STEPS = 2
"""Steps of an online method that are rehearsed."""
EXCERPT = 200


class RehearsalError(RuntimeError):
    """A run that cannot be rehearsed; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The work of a run: its stages in order, up to its end; `ends` is why it ends there.

    `seen` is its recipe's behaviour. `failed` is the error of a failed recipe.
    """

    config: RunConfig
    sample: PromptSample
    stages: Sequence[RehearsedStage]
    seen: Observed
    ends: str | None
    failed: str | None = None

    def require_whole(self) -> None:
        """Refuse to plan by the rehearsal of a recipe that failed.

        Raises:
            RehearsalError: saying how.
        """
        if self.failed is not None:
            raise RehearsalError(self.failed)


def rehearse(
    config: RunConfig,
    prompts: Sequence[Prompt],
    costs: CallCosts | None = None,
    *,
    longest: int = LONGEST_REPLY,
    labels: Labels | None = None,
) -> Rehearsal:
    """Return the work of a run of these prompts; `costs` are measured costs of its stages' calls.

    The replies of the stand-ins have `longest` letters at most. Of people's labels it reads a few.

    Raises:
        ConfigError: if something configured cannot be used, or a role that is needed lacks a model.
    """
    once = partial(_rehearse, config, prompts, costs or {}, longest, labels)
    # The result depends on whether the recipe calls the reward model, and which prompts it uses.
    first = once(Observed(uses={REWARD: ()}))
    seen, sizes = first.seen, config.prompts.parts
    if first.failed is None and config.iterations:
        _require_use(config, seen)
    require_named(needed_roles(config, seen), f"the recipe {config.recipe.name}")
    rewarded = REWARD in seen.uses or config.reward.model == NO_MODEL
    if rewarded and laid_out(sizes, seen.parts) == laid_out(sizes, PARTS):
        return first
    return once(seen)


def _rehearse(
    config: RunConfig,
    prompts: Sequence[Prompt],
    costs: CallCosts,
    longest: int,
    labels: Labels | None,
    assumed: Observed,
) -> Rehearsal:
    """Rehearse a run, opened as one whose recipe behaves as `assumed`."""
    sample = sample_prompts(config, prompts, assumed.parts)
    short = _shorten(config, sample)
    with opened_rehearsal(short, sample, costs, longest, labels, assumed) as run:
        ends = failed = None
        try:
            turn(run, sample.prompts)
        except NothingToTrainOn as end:
            ends = str(end)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 -- the error is reported
            # A recipe of the user's own may raise anything, at answers that no model gave.
            message = f"{type(error).__name__}: {error}".partition("\n")[0]
            failed = f"the run cannot be planned: {message[:EXCERPT]}"
        stages = () if failed is not None else tuple(_every_stage(run, config))
        seen = replace(run.observe(ended=ends is not None), iterations=config.iterations)
        if failed is not None or not config.iterations:
            # The part that was not seen may still call the reward model.
            seen = replace(seen, uses={REWARD: (), **seen.uses})
        return Rehearsal(
            config=config,
            sample=sample,
            stages=stages,
            seen=seen,
            ends=ends,
            failed=failed,
        )


def _require_use(config: RunConfig, seen: Observed) -> None:
    """Refuse people's labels, or a pool of models, that the recipe does not ask for.

    Raises:
        ConfigError: naming the setting.
    """
    if config.annotation.source and TAKE_LABELS.name not in seen.verbs:
        raise ConfigError(
            f"{LABELLED} is set, and the recipe {config.recipe.name} does not read it: only "
            "`annotated` and `surrogate` do; leave it out"
        )
    compares = not isinstance(config.recipe, Pooled)
    if compares and completes(config) and COMPLETE.name not in seen.verbs:
        raise ConfigError(
            f"completion.pool is unused: the recipe {config.recipe.name} does not call complete; "
            "leave it out"
        )


def _every_stage(run: RehearsedRun, config: RunConfig) -> Iterator[RehearsedStage]:
    """Yield the stages, first the one that commits people's answers, often many to each prompt."""
    source = source_of(config)
    if source is not None:
        every = read_supervised(config.prompts, source, run.prompts.values())
        group = PromptGroup(name=SUPERVISED, total=len(every), sample=())
        yield RehearsedStage(iteration=0, stage=SUPERVISED, group=group, by_chunk=True)
    yield from run.done


def _shorten(config: RunConfig, sample: PromptSample) -> RunConfig:
    """Return the configuration of a rehearsal: its prompts, few steps, no limits.

    Its stages run one by one, in one thread.
    """
    prompts, training = config.prompts, config.training
    margin = None if prompts.variance.margin is None else 0.0
    stepped = {name: _few_steps(getattr(training, name)) for name in sorted(ONLINE)}
    return config.model_copy(
        update={
            "iterations": min(config.iterations, rehearsed_iterations(config)),
            "budget": BudgetConfig(),
            "overlap": False,
            "prompts": prompts.model_copy(
                update={
                    "chunk": sample.chunk,
                    "per_iteration": None,
                    "max_test": None,
                    "max_dev": None,
                    "parts": sample.parts,
                    "variance": prompts.variance.model_copy(update={"margin": margin}),
                }
            ),
            "training": training.model_copy(
                update={
                    "min_pairs": 1,
                    "next_token": training.next_token.model_copy(update={"weight": 0.0}),
                    **stepped,
                }
            ),
        }
    )


def rehearsed_iterations(config: RunConfig) -> int:
    """Return how many iterations are rehearsed at most, so that each that differs is among them."""
    recipe = config.recipe
    if names_function(recipe.name):
        return OWN_ITERATIONS
    if isinstance(recipe, Scheduled) and not isinstance(recipe.train, str):
        return max(ITERATIONS, len(recipe.train))
    return ITERATIONS


def _few_steps(settings: OnlineSettings) -> OnlineSettings:
    """Return the settings of a training of few steps, which publishes on its way if it does."""
    few: dict[str, object] = {"max_steps": STEPS}
    return settings.model_copy(
        update=few | ({"publish_every": 1} if settings.publish_every else {})
    )
