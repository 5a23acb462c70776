"""The requests to each of several models that share a verb's work, over all prompts of a run.

A sample of prompts is too small for this: many models of a pool get none of it. So the work is
drawn as the run draws it. Who completes a prompt is drawn by the prompt's id, so these draws are
the run's own; which annotator gets a pair is drawn by ids that only the run's answers have, so
these draws are like the run's.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.annotation import INITIAL, Keying
from ...configs.eval_set_names import of_eval_set
from ...configs.schema import RunConfig
from ...critics.annotators.ask_annotator import ask_annotator
from ...critics.annotators.comparison import Comparison
from ...critics.annotators.simulate import assign, coin
from ...policies.engines.engine import Request, Sampling
from ...stores.records import Message, Preference
from ...stores.side_evals import smoked
from ..run.judge_panel import JudgePanel
from ..run.models import Served
from ..stages.annotate import annotator_line
from ..stages.compare import ANNOTATE, COMPARE, EVALUATED_BY
from ..stages.complete import COMPLETE
from ..stages.model_assignment import slots
from .rehearsed_run import RehearsedRun, RehearsedStage
from .stand_ins import Asked

DRAWN = 4096
"""Prompts whose share of models is drawn; the others are divided in the same proportions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPairs:
    """How many pairs an annotator is shown, each once for each order, and in how many requests."""

    pairs: float
    requests: float


def drawn_pairs(
    panel: JudgePanel,
    *,
    prompts: int,
    pairs_a_prompt: float,
    chunk: int,
    keyed_on: Keying,
    seed: int,
) -> Mapping[str, DrawnPairs]:
    """Return the pairs that each annotator of a panel gets, out of the pairs of so many prompts.

    Its pairs of a chunk of prompts share requests, if it takes several at once.
    """
    some = min(prompts, DRAWN)
    got = Counter[tuple[int, str]]()
    for prompt in range(some):
        for number in range(int((prompt + 1) * pairs_a_prompt) - int(prompt * pairs_a_prompt)):
            key = f"{prompt}" if keyed_on == "instruction" else f"{prompt} {number}"
            if coin(key, seed, panel.flip_probability) is None:
                got[prompt // chunk, assign(panel.pool, key, seed).name] += 1
    times = prompts / max(1, some)
    found = dict[str, DrawnPairs]()
    for annotator in panel.annotators:
        own = [count for (_, name), count in got.items() if name == annotator.name]
        requests = sum(math.ceil(count / annotator.batch_size) for count in own)
        found[annotator.name] = DrawnPairs(pairs=times * sum(own), requests=times * requests)
    return found


def divided(
    run: RehearsedRun, config: RunConfig, stages: Sequence[RehearsedStage]
) -> list[RehearsedStage]:
    """Return the stages of a rehearsal, with shared work counted over all prompts.

    A run that is rehearsed with all of its prompts has shown it already.
    """
    groups = dict[tuple[str, int], list[RehearsedStage]]()
    for stage in stages:
        label, _, _ = stage.notes.stage.rpartition(":")
        shares = label.partition(":")[0] in (COMPLETE.name, ANNOTATE.name, COMPARE.name)
        if shares and stage.scale != 1 and smoked(stage.notes.stage) is None:
            groups.setdefault((label, stage.notes.iteration), []).append(stage)
    made = dict[int, RehearsedStage]()
    for (label, _), own in groups.items():
        completes = label.partition(":")[0] == COMPLETE.name
        found = _completions(run, own) if completes else _comparisons(run, config, own)
        for stage, asked in zip(own, found, strict=True):
            notes = replace(stage.notes, asked={asked.served.name: asked} if asked.calls else {})
            made[id(stage)] = replace(stage, notes=notes, whole=True)
    return [made.get(id(stage), stage) for stage in stages]


def _completions(run: RehearsedRun, stages: Sequence[RehearsedStage]) -> Iterator[Asked]:
    """Yield the requests to each model of a pool that completes prompts."""
    completers, group = run.completers, stages[0].group
    assert completers is not None  # noqa: S101 -- the stages are its models'
    every = _asked(stages)
    n = sum(asked.calls for asked in every) // max(1, len(group.sample))
    weights, some = completers.pool.weights, group.every[:DRAWN]
    drawn = Counter(
        slot.model for p in some for slot in slots(weights, p.prompt_id, n, run.config.seed)
    )
    for stage in stages:
        mine = next(iter(_asked([stage])), None)
        if mine is None:  # It got no prompt of the sample; another one's requests are used.
            name = _last(stage)
            is_policy = any(m.is_policy for m in completers.pool.models if m.name == name)
            served = run.models.initial if is_policy else run.models.completers[name]
            like = every[0].sent[0]
            mine = _asked_once(run, stage, served, like.request.messages, like.sampling)
        calls = drawn[_last(stage)] * group.total / max(1, len(some))
        yield _like(mine, round(calls))


def _comparisons(
    run: RehearsedRun, config: RunConfig, stages: Sequence[RehearsedStage]
) -> Iterator[Asked]:
    """Yield the requests to each annotator of a panel.

    A request that contains more pairs is longer by these, and not by the text before them.
    """
    group, annotation = stages[0].group, config.annotation
    annotates = stages[0].notes.stage.startswith(f"{ANNOTATE.name}:")
    panel = run.panels.training if annotates else run.panels.evaluation
    assert panel is not None  # noqa: S101 -- the stages are its annotators'
    # Each stage is of one set of held-out prompts, which its prompts name.
    eval_set = group.sample[0].eval_set if group.sample else None
    initial = not annotates and of_eval_set(config.assessment.reference, eval_set) == INITIAL
    showings = 2 if initial or annotation.order == "both" else 1
    rows = [row for stage in stages for row in _rows(run, stage)]
    # M_0's answers are compared with themselves without a judge.
    pairs = sum(row.first_id != row.second_id for row in rows)
    drawn = drawn_pairs(
        panel,
        prompts=group.total,
        pairs_a_prompt=pairs / max(1, len(group.sample)),
        chunk=config.prompts.chunk,
        keyed_on=annotation.keyed_on if annotates else EVALUATED_BY,
        seed=config.seed,
    )
    frames = [_frame(run, panel, stage) for stage in stages]
    calls = [sum(asked.calls for asked in _asked([stage])) for stage in stages]
    of_frames = sum(n * f.prompt_tokens for n, f in zip(calls, frames, strict=True))
    of_pairs = sum(asked.prompt_tokens for asked in _asked(stages)) - of_frames
    pair = max(0, of_pairs) / max(1, showings * sum(bool(row.text) for row in rows))
    for stage, frame in zip(stages, frames, strict=True):
        share = drawn[_last(stage)]
        told = _like(frame, round(showings * share.requests))
        tokens = told.prompt_tokens + round(showings * share.pairs * pair)
        sent = [one for asked in _asked([stage]) for one in asked.sent]
        yield replace(told, prompt_tokens=tokens, sent=sent)


def _asked(stages: Sequence[RehearsedStage]) -> list[Asked]:
    return [asked for stage in stages for asked in stage.notes.asked.values()]


def _last(stage: RehearsedStage) -> str:
    """Return the model or the annotator of a stage, with which its label ends."""
    return stage.notes.stage.rpartition(":")[2]


def _rows(run: RehearsedRun, stage: RehearsedStage) -> list[Preference]:
    keys = [] if stage.planned is None else stage.planned.keys(run.store.journal)
    return [row for key in keys for row in run.store.rows(Preference, key)]


def _like(asked: Asked, calls: int) -> Asked:
    """Return so many calls like the given ones."""
    times = calls / asked.calls
    return replace(
        asked,
        calls=calls,
        prompt_tokens=round(times * asked.prompt_tokens),
        tokens=times * asked.tokens,
        most_tokens=round(times * asked.most_tokens),
    )


def _frame(run: RehearsedRun, panel: JudgePanel, stage: RehearsedStage) -> Asked:
    """Return the cost of a request to an annotator without the texts."""
    (annotator,) = (one for one in panel.annotators if one.name == _last(stage))
    line = annotator_line(run, annotator)
    nothing = Comparison(prompt="", first="", second="", key="nothing")
    messages = ask_annotator(annotator, (nothing,)).messages
    return _asked_once(run, stage, line.served, messages, line.first)


def _asked_once(
    run: RehearsedRun,
    stage: RehearsedStage,
    served: Served,
    messages: tuple[Message, ...],
    sampling: Sampling,
) -> Asked:
    """Return the cost of a request of a stage that the rehearsal did not send."""
    alone = replace(stage.notes, asked={})
    run.notes.stages.append(alone)
    run.notes.answered(served, Request(request_id="", messages=messages, seed=0), sampling)
    return alone.asked[served.name]
