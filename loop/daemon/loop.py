"""The loop itself: turns the iterations of a run, evaluates and publishes."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ...configs.schema import ConfigError, RunConfig
from ...configs.secrecy import redact
from ...policies.engines.engine import EngineError
from ...policies.trainers.job import TrainingError
from ...stores.address import BucketError
from ...stores.committer import if_there_is_room
from ...stores.journal_reader import JournalError
from ...stores.lake import PendingAgainError
from ...stores.records import Prompt
from ...stores.stage_files import require_unaltered
from ..data.prompts import load_prompts, notes_of
from ..data.row_notes import RowNotes
from ..evaluation.assessable import require_assessable, require_matchable
from ..evaluation.probe_sets import require_probes
from ..recipes.refusals import require_verifiable
from ..recipes.roles import warn_unwatched
from ..run.models import is_endpoint
from ..run.reporter import Reporter
from ..run.run import Run
from ..run.stop import AlarmStopError, NothingToTrainOn, Regressed, Stopped, StopSignal
from ..run.unread_replies import UnreadRepliesError
from ..stages.mix import mix_of, require_mix
from ..stages.people_labels import label_prompts, require_same_prompts
from ..stages.select_prompts import keep_filter_counts
from ..stages.supervised_set import require_supervised
from .iterations import end_of_converged, eval_prompts, turn, whole
from .job import Job
from .machine_check import faint_rates
from .opening import open_job, rehearse_job
from .rehearsal import Rehearsal

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
    on_begin: Callable[[Run, Sequence[Prompt], Rehearsal | None], None] = (
        lambda _run, _prompts, _rehearsal: None
    ),
) -> None:
    """Turn the loop until the configured number of iterations is reached.

    `on_open` gets the run's folder once this process holds the run, `on_begin` the run, its prompts
    and the rehearsal of a new run before any request.

    Raises:
        Stopped: if the user stopped it, or a budget ended; the run can be resumed.
        NothingToTrainOn: if an iteration has too little to train on.
        Regressed: if a policy is worse than the best, and the run is to stop there.
        ConfigError: if something configured cannot be used, or the run exists with other settings.
        DamagedError: if the run is finished, and rows of it were altered since.
        AlarmStopError: if an alarm stops the run; it can be resumed.
    """
    notes = notes_of(job.config.prompts)
    prompts = required_prompts(job.config, job.lake, notes)
    rehearsal = None if job.has_begun else rehearse_job(job, prompts)
    seen = None if rehearsal is None else rehearsal.seen
    with open_job(job, prompts, reporter, stop, on_open=on_open, seen=seen) as run:
        ended = run.store.journal.events("end")[-1:]
        finished = ended in ([whole(run.config)], [end_of_converged(run.config)])
        if is_endpoint(run.models.initial.location) and run.seen.trains and not finished:
            untrainable = UNTRAINABLE.format(run.models.initial.location)
            reporter.note(untrainable, "warning", code="W-UNTRAINABLE")
        elif not finished:
            for remark in faint_rates(run.config, run.seen.trainings):
                reporter.note(remark, "warning", code="W-RATE")
            for remark in warn_unwatched(run.config):
                reporter.note(remark, "warning", code="W-UNWATCHED")

        if job.given is None:
            on_begin(run, prompts, rehearsal)

        how = whole(run.config)
        left_out = notes.new_filter_counts(notes.rows)

        def work() -> None:
            nonlocal how
            keep_filter_counts(run, left_out)
            how = turn(run, prompts)
            if finished:
                # Hardly any of its rows was read again, so damage would stay unnoticed.
                require_unaltered(run.store.journal)

        work_until_whole(run, work)
        if_there_is_room(lambda: run.store.journal.record("end", how))


def required_prompts(config: RunConfig, lake: Path, notes: RowNotes | None = None) -> list[Prompt]:
    """Return the prompts of a run, if its other inputs fit to them.

    By default they are the prompts of people's labels. `notes` collects the notes on the rows of
    their files.

    Raises:
        ConfigError: naming the setting that cannot be used.
        InputError: naming the file that cannot be used.
    """
    labels = label_prompts(config, lake) if config.annotation.source else ()
    prompts = load_prompts(config.prompts, seed=config.seed, notes=notes, labelled=labels)
    require_same_prompts(labels, prompts)
    require_assessable(config, eval_prompts(config, prompts))
    require_matchable(config, prompts)
    require_verifiable(config, prompts)
    require_probes(config.assessment.probes, prompts)
    require_mix(mix_of(config), prompts)
    require_supervised(config, prompts)
    return prompts


def work_until_whole(run: Run, work: Callable[[], None]) -> None:
    """Work on a run, and record in the journal why it ended early.

    Rows found damaged are made again: `work` is then called again, and re-uses the rest.
    """
    try:
        while True:
            try:
                with run.flow:
                    work()
                break
            except PendingAgainError as damage:
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
        how = redact(f"{type(end).__name__}: {str(end) or 'a stop was requested'}")
        if_there_is_room(lambda: run.store.journal.record("end", how))
        raise
