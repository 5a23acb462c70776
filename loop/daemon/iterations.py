"""The iterations of a run: each makes, evaluates and reports a policy.

Every policy is evaluated on the run's eval sets: dev prompts, which decide, and held-out prompts.
Held-out prompts may be several sets with names. Each is a separate eval set and benchmark; verdicts
are about all of them, and about each.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import cast

from ...configs.schema import ConfigError, RunConfig
from ...stores.address import run_argument
from ...stores.journal_file import JournalError
from ...stores.keys import derive_seed
from ...stores.lake import RunReader
from ...stores.records import Checkpoint, PolicyVerdict, Prompt, Split
from ...stores.sealed import DamagedError
from ..data.splits import DEV, HELD_OUT, eval_set_benchmark
from ..evaluation.assess import evaluate
from ..evaluation.check_drafts import check_drafts
from ..evaluation.checkpoint_history import CheckpointHistory
from ..evaluation.observe import FEWEST
from ..evaluation.overoptimization_checks import stop_at_alarms, watch
from ..evaluation.policy_verdicts import commit_verdicts
from ..evaluation.probe import probe
from ..evaluation.step_eval_sets import chosen_policy
from ..lake.query.figures import deciding_of, shown_split
from ..lake.query.format_figures import BRIEF_SPLITS, figure_label, format_difference, format_value
from ..lake.query.model_figures import run_results
from ..lake.query.run_verdicts import verdicts_of
from ..lake.search.prompt_overlap import note_overlap
from ..recipes import recipe_entry
from ..recipes.refusals import judges_itself
from ..run.handles import Prompts, chunk_prompts
from ..run.iteration import Iteration, served_checkpoint
from ..run.models import is_endpoint
from ..run.run import Run
from ..run.stop import Regressed
from ..stages.publish import warm_trainer
from ..stages.select_prompts import Suitable, keep_prompts, suitable
from ..stages.smoke_test import smoke_test
from ..stages.train import keep_initial
from .derived_run import Given, begin, stored_given, train_given
from .trackers import log_iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSets:
    """The prompts that every policy of a run is evaluated on: dev and held-out ones, in order."""

    prompts: Mapping[Split, Sequence[Prompt]]
    chunk: int

    @classmethod
    def of(cls, config: RunConfig, prompts: Sequence[Prompt]) -> "EvalSets":
        """Return the eval sets of a run of these prompts."""
        every: dict[Split, Sequence[Prompt]] = {
            DEV: deciding(config, prompts),
            HELD_OUT: eval_prompts(config, prompts),
        }
        return cls(prompts=every, chunk=config.prompts.chunk)

    def chunks(self, split: Split) -> Prompts:
        """Return a split's prompts in the chunks of a stage."""
        return chunk_prompts(self.prompts[split], self.chunk)

    @property
    def sets(self) -> Mapping[str, list[Prompt]]:
        """The prompts of each set of held-out ones, by its benchmark: one set without names."""
        found: dict[str, list[Prompt]] = {}
        for prompt in self.prompts[HELD_OUT]:
            found.setdefault(eval_set_benchmark(prompt.eval_set), []).append(prompt)
        return found or {HELD_OUT: []}

    @property
    def held_out(self) -> Mapping[str, Prompts]:
        """The chunks of each set of held-out prompts, by its benchmark."""
        return {name: chunk_prompts(prompts, self.chunk) for name, prompts in self.sets.items()}


def evaluate_sets(
    it: Iteration, course: CheckpointHistory, eval_sets: EvalSets
) -> CheckpointHistory:
    """Evaluate M_t, and return the updated course of the run."""
    decides = bool(eval_sets.prompts[DEV])
    if decides:
        evaluate(it, eval_sets.chunks(DEV), benchmark=DEV)
    for benchmark, prompts in eval_sets.held_out.items():
        evaluate(it, prompts, benchmark=benchmark)
    probe(it)
    if it.number == course.first:
        return course
    watch(it, DEV if len(eval_sets.prompts[DEV]) >= FEWEST else HELD_OUT)
    course = commit_verdicts(it, course, eval_sets.prompts[HELD_OUT], HELD_OUT)
    return (
        commit_verdicts(it, course, eval_sets.prompts[DEV], DEV)
        if decides
        else course.having(it.parent)
    )


def eval_prompts(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the held-out prompts that every policy of a run is evaluated on, set by set."""
    sets: dict[str, list[Prompt]] = {}
    for prompt in order_prompts(prompts, HELD_OUT, config.seed):
        sets.setdefault(prompt.eval_set or "", []).append(prompt)
    return [p for name in sorted(sets) for p in sets[name][: config.prompts.max_test]]


def deciding(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the dev prompts by which the policies of a run are compared during the run."""
    return order_prompts(prompts, DEV, config.seed)[: config.prompts.max_dev]


def order_prompts(prompts: Sequence[Prompt], split: str, seed: int) -> list[Prompt]:
    """Return the prompts of a split in an order that depends on the seed and their ids alone."""
    chosen = [prompt for prompt in prompts if prompt.split == split]
    return sorted(chosen, key=lambda p: (derive_seed(seed, "order", p.prompt_id), p.prompt_id))


PROMPTS_A_PART = 4096
WORK = re.compile(r"[0-9a-f]{64}|unpacked")
"""How a run's folders in work/ are called: by a training's unit or stage, or for unpacked rows."""


def whole(config: RunConfig) -> str:
    """Return how a run is over that has reached its iterations."""
    return f"done: {config.iterations} iterations"


def end_of_converged(config: RunConfig) -> str:
    """Return the recorded end of a converged run."""
    return f"done: no new best in {config.verdict.converged_after} iterations"


def turn(run: Run, prompts: Sequence[Prompt]) -> str:
    """Evaluate the policy that the run begins with, then make and evaluate the next ones to M_N.

    Each iteration begins with the policy that the verdicts so far choose. Return how the run ends.
    """
    parts = range(0, len(prompts), PROMPTS_A_PART)
    keep_prompts(run, "prompts", [prompts[i : i + PROMPTS_A_PART] for i in parts])
    train = order_prompts(prompts, "train", run.config.seed)
    eval_sets = EvalSets.of(run.config, prompts)
    given = stored_given(run.store.journal)
    checkpoint = keep_initial(run) if given is None or given.iteration == 1 else begin(run, given)
    first = checkpoint.iteration
    if given is None and run.config.iterations > first:
        judge = "follows" if judges_itself(run.config) else "frozen"
        smoke_test(iteration(run, first, checkpoint), train, judge=judge)
    sampled = run.config.iterations > first + (given is not None)
    chosen = suitable(run, train) if sampled else Suitable(prompts=train)
    course = CheckpointHistory.of(checkpoint)
    for number in range(first, run.config.iterations + 1):
        start = course.start
        named = f": M_{start.iteration} to M_{number}" if number > first else f": M_{number}"
        run.reporter.note(f"iteration {number}{named}", "iteration", iteration=number)
        if number > first:
            share = chosen.share(number, run.config.prompts.per_iteration)
            it = iteration(run, number, start, share, eval_sets.chunks(HELD_OUT))
            if run.seen.trains and not is_endpoint(run.models.initial.location):
                warm_trainer(run)
            last, dev = _train(it, given), eval_sets.chunks(DEV)
            checkpoint = chosen_policy(it, last, dev, eval_sets.held_out)
            check_drafts(it)
        if number == first or checkpoint.checkpoint_id != start.checkpoint_id:
            course = evaluate_sets(iteration(run, number, checkpoint), course, eval_sets)
        else:
            course = course.having(checkpoint)
        run.flow.settle()
        report_score(run, number, course)
        if number == first:
            note_overlap(run)
        log_iteration(run, number)
        # On resuming, a later iteration's training may wait there for its turn.
        if number == max(state.iteration for state in run.store.journal.stages()):
            _discard_work(run)
            run.store.back_up()
        if _is_over(run, course):
            return end_of_converged(run.config)
        stop_at_alarms(run, number)
    return whole(run.config)


def _is_over(run: Run, course: CheckpointHistory) -> bool:
    """Whether the run has converged.

    Raises:
        Regressed: if the last policy is worse than the best, and the run is to stop there.
    """
    standing, settings = course.standing, run.config.verdict
    if standing is None:
        return False
    if not standing.accepted and settings.on_regression == "stop":
        raise Regressed(
            f"{standing.reason}, and verdict.on_regression is stop; the best is "
            f"M_{standing.best_iteration}: `lpfloop run --run NAME --reuse-from "
            f"{run_argument(run.store.folder)} --set verdict.on_regression=rollback` continues "
            "from it, as another run"
        )
    return settings.converged_after is not None and course.gainless >= settings.converged_after


def _train(it: Iteration, given: Given | None) -> Checkpoint:
    """Return M_t: by the recipe, or from the rows that were given."""
    if given is not None and it.number == given.iteration:
        return train_given(it, given)
    config = it.run.config.recipe
    # A recipe of the user's own may return anything.
    made = cast("object", recipe_entry(config.name).recipe(it, config))
    if not isinstance(made, Checkpoint):
        raise ConfigError(
            f"the recipe {config.name} returned {made!r:.60}, and no checkpoint: end it with "
            "`return train(it, ...)`"
        )
    return made


def iteration(
    run: Run,
    number: int,
    checkpoint: Checkpoint,
    prompts: Sequence[Prompt] = (),
    held_out: Prompts | None = None,
) -> Iteration:
    """Return the state of iteration `number`, with `checkpoint` as the policy."""
    return Iteration(
        run=run,
        number=number,
        parent=checkpoint,
        policy=served_checkpoint(run, checkpoint),
        train_prompts=chunk_prompts(prompts, run.config.prompts.chunk),
        held_out=held_out or chunk_prompts((), run.config.prompts.chunk),
    )


def _discard_work(run: Run) -> None:
    """Remove only the trainer's work folders, whose results are published by now.

    A folder that cannot be removed, as on NFS while somebody reads it, is skipped.
    """
    if run.store.journal.keeper is not None:
        from ..run.training_copies import discard_copies

        discard_copies(run.store)
    for path in (run.store.folder / "work").iterdir():
        if WORK.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


MOST_TASKS = 4
"""A policy's score is shown for each task if there are at most so many."""


def report_score(run: Run, iteration: int, course: CheckpointHistory) -> None:
    """Report how good M_t is on held-out prompts, and whether the dev prompts accept it.

    A damaged file of earlier rows costs this report, not the run.
    """
    try:
        _report(run, iteration, course)
    except (DamagedError, JournalError) as damage:
        run.reporter.note(
            f"M_{iteration} has no score here: {damage}", "score", iteration=iteration
        )


def _report(run: Run, iteration: int, course: CheckpointHistory) -> None:
    with closing(RunReader(run.store.folder)) as reader:
        split = shown_split(reader)
        figure = None if split is None else deciding_of(reader, split)
        if split is None or figure is None:
            return
        results = run_results(reader, split=split, by=("all", "task"), figure=figure)
        dev = [row for row in verdicts_of(reader, iteration, DEV) if row.scope == "all"]
    own = results.figure(figure).get(iteration)
    if own is None:
        return
    label = f"{BRIEF_SPLITS.get(split, split)} {figure_label(figure)} "
    label += format_value(figure, own.value)
    if own.change is not None and iteration != own.against:
        label += f", {format_difference(figure, own.change)} since M_{own.against}"
    tasks = {
        row.name: row.value
        for row in results.rows
        if (row.scope, row.figure, row.iteration) == ("task", figure, iteration)
    }
    if 1 < len(tasks) <= MOST_TASKS:
        each = (f"{name} {format_value(figure, value)}" for name, value in tasks.items())
        label += f" ({', '.join(each)})"
    accepted = None if course.standing is None else course.standing.accepted
    run.reporter.note(
        label + _decision(dev, accepted=accepted),
        "score",
        iteration=iteration,
        split=split,
        figure=figure,
        n=own.n,
        value=own.value,
        low=own.low,
        high=own.high,
        change=own.change,
        change_low=own.change_low,
        change_high=own.change_high,
        accepted=accepted,
        dev={row.against: row.difference for row in dev},
        tasks=tasks,
    )


def _decision(dev: list[PolicyVerdict], *, accepted: bool | None) -> str:
    """Return whether M_t is accepted, by its difference to the best policy on dev prompts."""
    best = next((row for row in dev if row.against == "best"), None)
    if accepted is None or best is None:
        return ""
    difference = format_difference(best.figure, best.difference)
    word = "accepted" if accepted else "rejected"
    return f"; {word} (dev {difference} to M_{best.other_iteration})"
