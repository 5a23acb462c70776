"""The verbs that compare: a policy's samples with one another, and its answers with a reference's.

Every pair gets one annotator of a panel; each annotator has a stage of its own, whose units are
committed as they are done, and the stages share their chunks of prompts.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ...configs.recipes import Annotated
from ...configs.schema import ConfigError
from ...stores.keys import Json
from ...stores.records import Candidate, Preference
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.needs import Needs
from ..run.panel import Panel
from ..run.run import Verb
from .annotate import Annotating, Task
from .matches import Match, all_pairs, drawn_pairs, match_of
from .retry_unscored import Retrying, replies_so_far

ANNOTATE, COMPARE = Verb("annotate"), Verb("compare")
Matched = Callable[[int], list[Match]]
"""Gives the matches of a chunk of prompts."""


def annotate(it: Iteration, candidates: Rows[Candidate]) -> Rows[Preference]:
    """Compare two of each prompt's usable candidates, or every two of them; with noise (p_ann).

    Raises:
        ConfigError: if the run was opened as one that learns from no comparisons.
    """
    panel = _present(it.run.panels.training)
    seed, config = it.run.config.seed, it.run.config.annotation
    every = config.comparisons == "all"

    def matched(chunk: int) -> list[Match]:
        drafts = it.chunk(candidates, chunk)
        pairs = all_pairs(drafts) if every else drawn_pairs(drafts, seed)
        return [match_of(*two, config) for two in pairs]

    which: Mapping[str, Json] = {"comparisons": "all"} if every else {}
    return _compared(it, ANNOTATE, panel, matched, which, candidates)


def compare(it: Iteration, answers: Rows[Candidate], outputs: Rows[Candidate]) -> Rows[Preference]:
    """Compare each answer, as the second, with the reference's output to its prompt (p_eval).

    An answer that is empty or truncated is compared as it is; a prompt without an output is not.

    Raises:
        ConfigError: if the run was opened as one that evaluates by no comparisons.
    """
    panel = _present(it.run.panels.evaluation)
    config = it.run.config.annotation

    def matched(chunk: int) -> list[Match]:
        known = {output.prompt_id: output for output in it.chunk(outputs, chunk)}
        asked = [a for a in it.chunk(answers, chunk) if a.prompt_id in known]
        return [match_of(known[answer.prompt_id], answer, config) for answer in asked]

    return _compared(it, COMPARE, panel, matched, {}, answers, outputs)


def _present(panel: Panel | None) -> Panel:
    if panel is None:
        raise ConfigError(
            "this run has no annotators: the class of the recipe's settings needs Annotated among "
            "its bases, or assessment.reference must name what answers are compared with"
        )
    return panel


def _compared(
    it: Iteration,
    verb: Verb,
    panel: Panel,
    matched: Matched,
    which: Mapping[str, Json],
    *read: Rows[Candidate],
) -> Rows[Preference]:
    """Pay the stage of each annotator, then ask again where the run was told to.

    `which` is what the keys say of the choice of matches.
    """
    asking = [
        Annotating(run=it.run, iteration=it.number, verb=verb, panel=panel, annotator=annotator)
        for annotator in panel.annotators
    ]
    stages = [_paid(it, annotating, matched, which, *read) for annotating in asking]
    group = tuple(planned.stage for planned in stages)
    for annotating, planned in zip(asking, stages, strict=True):
        place = (it.number, planned.stage)
        if place in it.run.retry:
            it.run.retry.remove(place)
            again = replace(annotating, retrying=True)
            retrying = Retrying(run=it.run, planned=planned, group=group)
            retrying.pay(again, partial(_tasks, again, matched))
    return Rows(row_type=Preference, stages=tuple(stages))


def _paid(
    it: Iteration,
    annotating: Annotating,
    matched: Matched,
    which: Mapping[str, Json],
    *read: Rows[Candidate],
) -> Planned:
    """Pay the stage of one annotator: those of the pairs that it was drawn for."""
    attempts = it.run.config.annotation.attempts
    params: Json = {"by": annotating.identity, "attempts": attempts, **which}
    owed = it.work(annotating.verb, params, *read)
    label = f"{annotating.verb.name}:{read[0].label}:{annotating.annotator.name}"
    replies = replies_so_far(it.run.store.journal, attempts)
    with it.run.stage(it.number, label, owed, judge=True) as stage:
        annotating.pay(stage, lambda unit: _tasks(annotating, matched, unit.chunk), replies)
    return stage.planned


def _tasks(annotating: Annotating, matched: Matched, chunk: int) -> list[Task]:
    return annotating.tasks(matched(chunk))


NEEDS: Needs = {annotate: (Annotated,)}
