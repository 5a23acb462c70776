"""The verbs that compare: a policy's samples with one another, and its answers with a reference's.

Every pair gets one annotator of a panel; each annotator has a stage of its own, whose units are
committed as they are done, and the stages share their chunks of prompts.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from ...critics.annotators.simulate import draw_key
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import Candidate, Preference
from ..rows import Planned, Rows
from ..turn import Turn
from .annotating import Annotating
from .matches import Match, Task, normal
from .panel import Panel
from .retrying import Retrying, replies_so_far

Verb = Literal["annotate", "compare"]
Matched = Callable[[int], list[Match]]
"""Gives the matches of a chunk of prompts."""


def annotate(it: Turn, candidates: Rows[Candidate]) -> Rows[Preference]:
    """Compare two of each prompt's usable candidates; noise decides some of them (p_ann).

    Raises:
        RuntimeError: if the run was opened as one that learns from no comparisons.
    """
    panel = _present(it.run.panels.training)
    seed, keyed_on = it.run.config.seed, it.run.config.annotation.keyed_on

    def matched(chunk: int) -> list[Match]:
        drafts = it.chunk(candidates, chunk)
        return [_match(*two, keyed_on) for two in drawn_pairs(drafts, seed)]

    return _compared(it, "annotate", panel, matched, candidates)


def compare(it: Turn, answers: Rows[Candidate], outputs: Rows[Candidate]) -> Rows[Preference]:
    """Compare each answer, as the second, with the reference's output to its prompt (p_eval).

    An answer that is empty or truncated is compared as it is; a prompt without an output is not.

    Raises:
        RuntimeError: if the run was opened as one that evaluates by no comparisons.
    """
    panel = _present(it.run.panels.evaluation)
    keyed_on = it.run.config.annotation.keyed_on

    def matched(chunk: int) -> list[Match]:
        known = {output.prompt_id: output for output in it.chunk(outputs, chunk)}
        asked = [a for a in it.chunk(answers, chunk) if a.prompt_id in known]
        return [_match(known[answer.prompt_id], answer, keyed_on) for answer in asked]

    return _compared(it, "compare", panel, matched, answers, outputs)


def drawn_pairs(candidates: Sequence[Candidate], seed: int) -> list[tuple[Candidate, Candidate]]:
    """Return one pair a prompt: two usable candidates with different texts, drawn at random.

    They stand in the order of `candidates`. Where all texts of a prompt are equal (but for white
    space) its first two candidates are the pair; with fewer than two there is none.
    """
    by_prompt: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.usable:
            by_prompt.setdefault(candidate.prompt_id, []).append(candidate)
    return [
        _two_of(usable, derive_seed(seed, "match", [c.candidate_id for c in usable]))
        for usable in by_prompt.values()
        if len(usable) > 1
    ]


def _two_of(usable: Sequence[Candidate], seed: int) -> tuple[Candidate, Candidate]:
    distinct = dict[str, Candidate]()
    for candidate in usable:
        distinct.setdefault(normal(candidate), candidate)
    if len(distinct) == 1:
        return usable[0], usable[1]
    texts = list(distinct.values())
    first, second = sorted(random.Random(seed).sample(range(len(texts)), 2))
    return texts[first], texts[second]


def _match(first: Candidate, second: Candidate, keyed_on: Literal["pair", "instruction"]) -> Match:
    pair = row_id("match", [first.candidate_id, second.candidate_id])
    drawn_by = draw_key(keyed_on, pair=pair, instruction=first.prompt_id)
    return Match(first=first, second=second, drawn_by=drawn_by)


def _present(panel: Panel | None) -> Panel:
    if panel is None:
        raise RuntimeError("this run was opened without annotators: see `Panels.of`")
    return panel


def _compared(
    it: Turn, verb: Verb, panel: Panel, matched: Matched, *read: Rows[Candidate]
) -> Rows[Preference]:
    """Pay the stage of each annotator, then ask again where the run was told to."""
    asking = [
        Annotating(run=it.run, iteration=it.number, verb=verb, panel=panel, annotator=annotator)
        for annotator in panel.annotators
    ]
    stages = [_paid(it, annotating, matched, *read) for annotating in asking]
    group = tuple(planned.stage for planned in stages)
    for annotating, planned in zip(asking, stages, strict=True):
        place = (it.number, planned.stage)
        if place in it.run.retry:
            it.run.retry.remove(place)
            again = replace(annotating, retrying=True)
            retrying = Retrying(run=it.run, planned=planned, group=group)
            retrying.pay(again, partial(_tasks, again, matched))
    return Rows(row_type=Preference, stages=tuple(stages))


def _paid(it: Turn, annotating: Annotating, matched: Matched, *read: Rows[Candidate]) -> Planned:
    """Pay the stage of one annotator: those of the pairs that it was drawn for."""
    attempts = it.run.config.annotation.attempts
    params: Json = {"by": annotating.identity, "attempts": attempts}
    owed = it.work(annotating.verb, params, *read)
    label = f"{annotating.verb}:{read[0].label}:{annotating.annotator.name}"
    replies = replies_so_far(it.run.store.journal, attempts)
    with it.run.stage(it.number, label, owed, judge=True) as stage:
        annotating.pay(stage, lambda unit: _tasks(annotating, matched, unit.chunk), replies)
    return stage.planned


def _tasks(annotating: Annotating, matched: Matched, chunk: int) -> list[Task]:
    return annotating.desk.tasks(matched(chunk))
