"""The intermediate policies of an iteration's training, and the choice of M_t among them.

Each is evaluated of M_t on dev prompts, including the last one, under a separate benchmark. If
the settings ask for it, M_t is the best of them by the first usual figure that all were measured
by: a training that continues after its reward stops being trustworthy then loses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from ...configs.methods import SteppedTraining
from ...configs.schema import ConfigError, RunConfig
from ...policies.trainers.job import ONLINE
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.records import Checkpoint, Prompt, Score
from ...stores.schemas import RowsByType
from ..data.splits import DEV
from ..data.stage_names import step_benchmark
from ..lake.query.format_figures import figure_name
from ..lake.query.policy_figures import USUAL, Values, metrics_of, values_of
from ..run.handles import Prompts
from ..run.iteration import Iteration, served_checkpoint
from ..run.run import Verb, Work
from ..stages.online_rl import ON_THE_WAY
from .assess import evaluate
from .metrics import measured_keys
from .probe import probe

CHOOSE = Verb("choose")


def require_choosable(config: RunConfig, methods: Sequence[str], dev: Sequence[Prompt]) -> None:
    """Refuse to choose among policies without prompts to choose by; `methods` train in the run.

    Raises:
        ConfigError: naming the setting.
    """
    online = ((name, getattr(config.training, name)) for name in methods if name in ONLINE)
    method = next((name for name, settings in online if settings.choose == "best"), None)
    if method is not None and not dev:
        raise ConfigError(
            f"training.{method}.choose is best, which needs dev prompts: set prompts.dev_share, "
            "such as 0.05; held-out prompts never choose"
        )


def chosen_policy(
    it: Iteration, last: Checkpoint, dev: Prompts, held_out: Mapping[str, Prompts]
) -> Checkpoint:
    """Evaluate the intermediate policies before the last one, if there are any, and return M_t.

    `held_out` are the held-out prompts by their benchmark.
    """
    between = _on_the_way(it)
    if last.at_step is None and not between:
        return last
    settings = _settings(it)
    every = [*between, replace(last, at_step=last.steps)]
    for policy in every:
        own = replace(it, parent=policy, policy=served_checkpoint(it.run, policy))
        if dev.chunks:
            evaluate(own, dev, benchmark=DEV, step=policy.at_step)
        for benchmark, prompts in held_out.items() if settings.held_out_each else ():
            evaluate(own, prompts, benchmark=benchmark, step=policy.at_step)
        probe(own, policy.at_step)
    return last if settings.choose == "last" else _best(it, every)


def _on_the_way(it: Iteration) -> list[Checkpoint]:
    journal = it.run.store.journal
    if (it.number, ON_THE_WAY) not in {(s.iteration, s.stage) for s in journal.stages()}:
        return []
    keys = journal.keys(it.number, ON_THE_WAY)
    return [row for key in keys for row in it.run.store.rows(Checkpoint, key)]


def _settings(it: Iteration) -> SteppedTraining:
    """Return the settings of the method that trained in this iteration."""
    stages = (s.stage for s in it.run.store.journal.stages() if s.iteration == it.number)
    settings: SteppedTraining = getattr(
        it.run.config.training, next(s for s in stages if s in ONLINE)
    )
    return settings


def _best(it: Iteration, every: Sequence[Checkpoint]) -> Checkpoint:
    """Commit the best policy by the dev prompts as M_t; of equal ones the earliest."""
    benchmarks = {step_benchmark(DEV, policy.steps): policy.steps for policy in every}
    keys = [key for benchmark in benchmarks for key in measured_keys(it, it.number, benchmark)]
    work = Work(
        verb=CHOOSE,
        params={"among": [policy.checkpoint_id for policy in every]},
        upstream=tuple(keys),
        reads=lambda: [keys],
    )

    def make(_: Unit) -> RowsByType:
        tables = [as_frame(it.run.store.table(Score, key)) for key in keys]
        found = deciding_values(pl.concat(tables), benchmarks) if tables else None
        if found is None:
            it.run.reporter.note(
                f"no metric on {DEV} prompts ranks the policies: M_{it.number} is the last"
            )
            return {Checkpoint: [replace(every[-1], at_step=None)]}
        figure, values = found
        means = {step: fmean(of.values()) for step, of in values.items()}
        best = max(means, key=lambda step: (means[step], -step))
        it.run.reporter.note(
            f"M_{it.number} is the policy after step {best}: of {len(means)} its "
            f"{figure_name(figure)} on {len(values[best])} {DEV} prompts is the highest, "
            f"{means[best]:.3f}; the last, "
            f"after step {max(means)}, has {means[max(means)]:.3f}"
        )
        chosen = next(policy for policy in every if policy.steps == best)
        return {Checkpoint: [replace(chosen, at_step=None)]}

    planned = it.run.make(it.number, CHOOSE.name, work, make)
    it.run.decide_by(planned)
    (checkpoint,) = it.run.store.rows(Checkpoint, planned.key(it.run.store.journal, 0))
    return checkpoint


def deciding_values(
    scores: pl.DataFrame, benchmarks: Mapping[str, int]
) -> tuple[str, Mapping[int, Values]] | None:
    """Return the first usual figure that was measured, and each step's values of it.

    Only prompts with a value for every policy are included; None without such prompts. `benchmarks`
    has the step of each.
    """
    by_step = scores.with_columns(
        iteration=pl.col("benchmark").replace_strict(benchmarks, return_dtype=pl.Int64)
    )
    names = scores["metric"].unique().sort().to_list()
    for figure in USUAL:
        if not metrics_of(figure, names):
            continue
        found = values_of(by_step.lazy(), figure, names)
        shared = set[str].intersection(*(set(of) for of in found.values())) if found else set[str]()
        if len(found) == len(benchmarks) and shared:
            of_shared = {step: {p: of[p] for p in sorted(shared)} for step, of in found.items()}
            return figure, of_shared
    return None
