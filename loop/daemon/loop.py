"""The loop itself: turns the iterations of a run, evaluates and publishes."""

import logging
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from ...configs.schema import ConfigError, RunConfig
from ...configs.secrecy import redacted
from ...policies.engines.engine import EngineError
from ...policies.trainers.job import TrainingError
from ...stores.address import run_argument
from ...stores.bucket import BucketError
from ...stores.committer import if_there_is_room
from ...stores.journal_reader import JournalError
from ...stores.lake import OwedAgainError
from ...stores.records import Checkpoint, Prompt
from ...stores.stage_files import require_unaltered
from ..data.prompts import load_prompts, notes_of
from ..data.row_notes import RowNotes
from ..data.splits import HELD_OUT
from ..evaluation.assessable import require_assessable, require_matchable
from ..evaluation.check_drafts import check_drafts
from ..evaluation.course import Course
from ..evaluation.probe_sets import require_probes
from ..evaluation.step_exams import require_choosable
from ..evaluation.watch_policy import stop_at_alarms
from ..lake.search.duplicates import note_duplicates
from ..recipes import variant_of
from ..recipes.reward_needs import require_verifiable
from ..recipes.roles import trains, unwatched
from ..recipes.smoke_needs import smoke_needs, trainings
from ..run.handles import Prompts, chunked
from ..run.iteration import Iteration
from ..run.models import is_endpoint
from ..run.outcomes import AlarmStopError, NothingToTrainOn, Regressed
from ..run.reporter import Reporter
from ..run.run import Run
from ..run.served_checkpoint import served_checkpoint
from ..run.stop import Stopped, StopSignal
from ..run.training_copies import discard_copies
from ..run.unread_replies import UnreadRepliesError
from ..stages.keep_prompts import keep_prompts, keep_receipts
from ..stages.mix import mix_of, require_mix
from ..stages.people_labels import label_prompts, require_same_prompts
from ..stages.publish import warm_trainer
from ..stages.select_prompts import Suitable, suitable
from ..stages.smoke_test import smoke_test
from ..stages.supervised_set import require_supervised
from ..stages.train import keep_initial
from .derived_run import Given, begin, stored_given, train_given
from .exams import Exams, deciding, examine, examine_steps, examined, ordered
from .job import Job
from .opening import opened
from .tell_trackers import tell_trackers
from .training_check import faint_rates

PROMPTS_A_PART = 4096
WORK = re.compile(r"[0-9a-f]{64}|unpacked")
"""How a run's folders in work/ are called: by a training's unit or stage, or for unpacked rows."""

UNTRAINABLE = (
    "the policy is served at {}: its answers are sampled, judged and kept, but its weights cannot "
    "be trained here, and the run ends before its first training (exit code 4); to train it, name "
    "its folder with --policy"
)

logger = logging.getLogger("lpfloop.loop")


def run_loop(
    job: Job,
    reporter: Reporter,
    stop: StopSignal,
    *,
    on_open: Callable[[Path], None] = lambda _: None,
    on_begin: Callable[[Run, Sequence[Prompt]], None] = lambda _run, _prompts: None,
    on_tried: Callable[[Run, Sequence[Prompt]], None] = lambda _run, _prompts: None,
    on_turned: Callable[[Run, int], None] = lambda _run, _iteration: None,
) -> None:
    """Turn the loop until the configured number of iterations is reached.

    `on_open` is told the run's folder once this process holds the run, `on_begin` the run and its
    prompts before anything is asked, `on_tried` both when the smoke test has passed, `on_turned`
    the run and an iteration when that is over.

    Raises:
        Stopped: if a stop was asked for, or a budget ended; the run can be resumed.
        NothingToTrainOn: if an iteration has too little to train on.
        Regressed: if a policy is worse than the best, and the run is to stop there.
        ConfigError: if something configured cannot be used, or the run exists with other settings.
        DamagedError: if the run is finished, and rows of it were altered since.
        AlarmStopError: if an alarm stops the run; it can be resumed.
    """
    notes = notes_of(job.config.prompts)
    prompts = required_prompts(job.config, job.read_lake, notes)
    with opened(job, prompts, reporter, stop, on_open=on_open) as run:
        ended = run.store.journal.events("end")[-1:]
        finished = ended in ([_whole(run.config)], [_converged(run.config)])
        if is_endpoint(run.models.initial.location) and trains(run.config) and not finished:
            reporter.note(UNTRAINABLE.format(run.models.initial.location))
        elif not finished:
            for remark in (*faint_rates(run.config), *unwatched(run.config)):
                reporter.note(remark)

        if job.given is None:
            on_begin(run, prompts)

        how = _whole(run.config)
        left_out = notes.new_receipts(notes.unused.rows)

        def work() -> None:
            nonlocal how
            keep_receipts(run, left_out)
            how = turn(run, prompts, on_tried=lambda: on_tried(run, prompts), on_turned=on_turned)
            if finished:
                # Hardly any of its rows was read again, so nothing else would notice.
                require_unaltered(run.store.journal)

        work_until_whole(run, work)
        if_there_is_room(lambda: run.store.journal.record("end", how))


def _whole(config: RunConfig) -> str:
    """Return how a run is over that has reached its iterations."""
    return f"done: {config.iterations} iterations"


def _converged(config: RunConfig) -> str:
    """Return how a run is over that gains no more."""
    return f"done: no new best in {config.verdict.converged_after} iterations"


def required_prompts(config: RunConfig, lake: Path, notes: RowNotes | None = None) -> list[Prompt]:
    """Return the prompts of a run, if all that it reads besides fits to them.

    They are those of people's labels where no others are named. `notes` are told of the rows of
    their files.

    Raises:
        ConfigError: naming the setting that cannot be used.
        InputError: naming the file that cannot be used.
    """
    labels = label_prompts(config, lake) if config.annotation.source else ()
    prompts = load_prompts(config.prompts, seed=config.seed, notes=notes, labelled=labels)
    require_same_prompts(labels, prompts)
    require_assessable(config, examined(config, prompts))
    require_choosable(config, trainings(config), deciding(config, prompts))
    require_matchable(config, prompts)
    require_verifiable(config, prompts)
    require_probes(config.assessment.probes, prompts)
    require_mix(mix_of(config), prompts)
    require_supervised(config, prompts)
    return prompts


def work_until_whole(run: Run, work: Callable[[], None]) -> None:
    """Work on a run, and note in the journal what ends it before.

    Rows found damaged on the way are made again: `work` then begins anew, and re-uses the rest.
    """
    try:
        while True:
            try:
                with run.flow:
                    work()
                break
            except OwedAgainError as damage:
                logger.warning("%s; it is made again", damage)
    except (
        Stopped,
        ConfigError,
        NothingToTrainOn,
        Regressed,
        EngineError,
        TrainingError,
        JournalError,
        BucketError,
        UnreadRepliesError,
        AlarmStopError,
    ) as end:
        how = redacted(f"{type(end).__name__}: {str(end) or 'a stop was asked for'}")
        if_there_is_room(lambda: run.store.journal.record("end", how))
        raise


def turn(
    run: Run,
    prompts: Sequence[Prompt],
    *,
    on_tried: Callable[[], None] = lambda: None,
    on_turned: Callable[[Run, int], None] = lambda _run, _iteration: None,
) -> str:
    """Evaluate the policy that the run begins with, then make and evaluate the next ones to M_N.

    Each iteration begins with the policy that the verdicts so far choose. Return how the run ends.
    """
    parts = range(0, len(prompts), PROMPTS_A_PART)
    keep_prompts(run, "prompts", [prompts[i : i + PROMPTS_A_PART] for i in parts])
    train = ordered(prompts, "train", run.config.seed)
    exams = Exams.of(run.config, prompts)
    given = stored_given(run.store.journal)
    checkpoint = keep_initial(run) if given is None or given.iteration == 1 else begin(run, given)
    first = checkpoint.iteration
    if given is None and run.config.iterations > first:
        tried = iteration(run, first, checkpoint)
        if smoke_test(tried, smoke_needs(run), train):
            on_tried()
    sampled = run.config.iterations > first + (given is not None)
    chosen = suitable(run, train) if sampled else Suitable(prompts=train)
    course = Course.of(checkpoint)
    for number in range(first, run.config.iterations + 1):
        start = course.start
        if number > first:
            share = chosen.share(number, run.config.prompts.per_iteration)
            it = iteration(run, number, start, share, exams.chunked(HELD_OUT))
            if trains(run.config) and not is_endpoint(run.models.initial.location):
                warm_trainer(run)
            checkpoint = examine_steps(it, _trained(it, given), exams)
            check_drafts(it)
        if number == first or checkpoint.checkpoint_id != start.checkpoint_id:
            course = examine(iteration(run, number, checkpoint), course, exams)
        else:
            course = course.having(checkpoint)
        run.flow.settle()
        note_duplicates(run, number)
        tell_trackers(run, number)
        on_turned(run, number)
        # On resuming, a later iteration's training may wait there for its turn.
        if number == max(state.iteration for state in run.store.journal.stages()):
            _discard_work(run)
            run.store.back_up()
        if _is_over(run, course):
            return _converged(run.config)
        stop_at_alarms(run, number)
    return _whole(run.config)


def _is_over(run: Run, course: Course) -> bool:
    """Whether the run gains no more.

    Raises:
        Regressed: if the last policy is worse than the best, and the run is to stop there.
    """
    standing, wanted = course.standing, run.config.verdict
    if standing is None:
        return False
    if not standing.accepted and wanted.on_regression == "stop":
        raise Regressed(
            f"{standing.reason}, and verdict.on_regression is stop; the best is "
            f"M_{standing.best_iteration}: `lpfloop run --run NAME --fork "
            f"{run_argument(run.store.folder)} --set "
            "verdict.on_regression=rollback` goes on with it, as another run"
        )
    return wanted.converged_after is not None and course.gainless >= wanted.converged_after


def _trained(it: Iteration, given: Given | None) -> Checkpoint:
    """Return M_t: by the recipe, or from the rows that were given."""
    if given is not None and it.number == given.iteration:
        return train_given(it, given)
    config = it.run.config.recipe
    # A recipe of the user's own may return anything.
    made = cast("object", variant_of(config.name).recipe(it, config))
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
        train_prompts=chunked(prompts, run.config.prompts.chunk),
        held_out=held_out or chunked((), run.config.prompts.chunk),
    )


def _discard_work(run: Run) -> None:
    """Remove the trainer's work folders, whose results are published by now, and nothing else.

    What cannot be removed, as on NFS while somebody reads it, is in nobody's way.
    """
    discard_copies(run.store)
    for path in (run.store.folder / "work").iterdir():
        if WORK.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
