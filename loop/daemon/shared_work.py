"""How many requests fall to each of several models that share a verb's work.

Who completes a prompt is drawn by the prompt's id, so it is drawn for the run's own prompts. Which
annotator gets a pair is drawn by ids that only the run's answers have: that is expected.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.annotation import INITIAL, Keying, Ordering
from ...configs.exam_names import of_exam
from ...configs.schema import RunConfig
from ...critics.annotators.annotator_pool import AnyAnnotator
from ...critics.annotators.ask_annotator import ask_annotator
from ...critics.annotators.comparison import Comparison
from ...policies.engines.engine import Request, Sampling
from ...stores.beside import smoked
from ...stores.records import Message, Preference, Prompt
from ..run.completers import Completers
from ..run.lines import engine_sampling
from ..run.models import Served
from ..run.panel import Panel
from ..run.run import Run
from ..stages.compare import ANNOTATE, COMPARE, EVALUATED_BY
from ..stages.complete import COMPLETE
from ..stages.judging import with_room
from ..stages.model_assignment import Slot, principle_of, slots, told
from .rehearsed_run import RehearsedStage
from .stand_ins import Asked, Notes, StageNotes

DRAWN = 4096
"""Prompts of which it is drawn who completes them: 1 % of a model's share is more than luck."""


def completers_drawn(
    weights: Mapping[str, float], prompts: Sequence[Prompt], n: int, seed: int, *, total: int
) -> Mapping[str, float]:
    """Return how many of the n completions of `total` prompts each model gives.

    It is exact where these are the prompts, and not more than `DRAWN`.
    """
    some = prompts[:DRAWN]
    drawn = Counter(s.model for p in some for s in slots(weights, p.prompt_id, n, seed))
    return {name: count * total / len(some) for name, count in drawn.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPairs:
    """Pairs that the annotators of a panel share: of how many prompts, how many of each.

    `order` is how they are shown, `keyed_on` what is drawn by, if not as the configuration says.
    """

    config: RunConfig
    panel: Panel
    prompts: int
    pairs_a_prompt: float
    order: Ordering | None = None
    keyed_on: Keying | None = None

    @property
    def chance(self) -> float:
        """How likely a pair is asked of one annotator, and not left to a coin."""
        return (1 - 2 * self.panel.flip_probability) / len(self.panel.pool.annotators)

    @property
    def showings(self) -> int:
        """How often a pair is shown."""
        return 2 if (self.order or self.config.annotation.order) == "both" else 1

    @property
    def asked(self) -> float:
        """The pairs that are shown to one annotator, once for each showing."""
        return self.prompts * self.pairs_a_prompt * self.chance * self.showings

    def requests(self, annotator: AnyAnnotator) -> float:
        """Return the requests to an annotator: its pairs of a chunk stand together, some in one."""
        chunk = self.config.prompts.chunk
        whole, rest = divmod(self.prompts, chunk)
        each = whole * self._of_chunk(chunk, annotator.batch_size)
        return self.showings * (each + self._of_chunk(rest, annotator.batch_size))

    def _of_chunk(self, prompts: int, size: int) -> float:
        """Return the requests of a chunk; what is drawn at once is a pair, or a prompt's pairs."""
        keyed_on = self.keyed_on or self.config.annotation.keyed_on
        together = self.pairs_a_prompt if keyed_on == "instruction" else 1.0
        draws = round(prompts * self.pairs_a_prompt / together) if together else 0
        return sum(
            _binomial(draws, number, self.chance) * math.ceil(number * together / size - 1e-9)
            for number in range(1, draws + 1)
        )


def _binomial(draws: int, number: int, chance: float) -> float:
    """Return how likely so many of the draws hit."""
    if chance in (0, 1):
        return float(number == draws * chance)
    ways = math.lgamma(draws + 1) - math.lgamma(number + 1) - math.lgamma(draws - number + 1)
    return math.exp(ways + number * math.log(chance) + (draws - number) * math.log1p(-chance))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotatorStage:
    """An annotator's stage as it was rehearsed: `shown` are the pairs that it was asked about."""

    notes: StageNotes
    annotator: AnyAnnotator
    served: Served
    sampling: Sampling
    shown: int

    @property
    def asked(self) -> list[Asked]:
        """What it asked."""
        return list(self.notes.asked.values())

    @property
    def calls(self) -> int:
        """Its requests."""
        return sum(asked.calls for asked in self.asked)

    @property
    def tokens(self) -> int:
        """The tokens of its prompts."""
        return sum(asked.prompt_tokens for asked in self.asked)


def asked_of_annotators(
    shared: SharedPairs,
    stages: Sequence[AnnotatorStage],
    notes: Notes,
) -> Iterator[StageNotes]:
    """Give the notes of annotators' stages with what all pairs will ask of each.

    A request that holds more pairs is longer by these, and not by what stands ahead of them.
    """
    frames = [_frame(notes, stage) for stage in stages]
    of_pairs = sum(
        s.tokens - s.calls * f.prompt_tokens for s, f in zip(stages, frames, strict=True)
    )
    pair = max(0.0, of_pairs) / max(1, sum(stage.shown for stage in stages))
    total = 0.0
    for stage, frame in zip(stages, frames, strict=True):
        before, total = total, total + shared.requests(stage.annotator)
        # Rounded so that all stages together are rounded once.
        calls = round(total) - round(before)
        share = calls / (total - before) if total > before else 0.0
        pairs = round(share * shared.asked * pair)
        sent = [one for asked in stage.asked for one in asked.sent]
        asked = scaled(frame, calls)
        asked = replace(asked, prompt_tokens=asked.prompt_tokens + pairs, sent=sent)
        yield replace(stage.notes, asked={frame.served.name: asked} if calls or sent else {})


def scaled(asked: Asked, calls: int) -> Asked:
    """Return so many calls like those that were asked."""
    times = calls / asked.calls
    return replace(
        asked,
        calls=calls,
        prompt_tokens=round(times * asked.prompt_tokens),
        tokens=times * asked.tokens,
        most_tokens=round(times * asked.most_tokens),
    )


def _frame(notes: Notes, stage: AnnotatorStage) -> Asked:
    """Return what a request without a text in it asks of an annotator."""
    nothing = Comparison(prompt="", first="", second="", key="nothing")
    messages = ask_annotator(stage.annotator, (nothing,)).messages
    return asked_once(notes, stage.notes, stage.served, messages, stage.sampling)


def asked_once(
    notes: Notes,
    stage: StageNotes,
    served: Served,
    messages: tuple[Message, ...],
    sampling: Sampling,
) -> Asked:
    """Return what a request of a stage costs that the rehearsal did not send."""
    alone = replace(stage, asked={})
    notes.stages.append(alone)
    notes.answered(served, Request(request_id=stage.stage, messages=messages, seed=0), sampling)
    return alone.asked[served.name]


def divided(
    run: Run, config: RunConfig, stages: Sequence[RehearsedStage], notes: Notes
) -> list[RehearsedStage]:
    """Return the stages of a rehearsal, with what those that share work ask of all prompts."""
    divider = _Divider(run=run, config=config, notes=notes)
    by_place = {id(stage): stage for stage in stages}
    for (verb, *_), own in _shared(stages).items():
        divide = divider.completions if verb == COMPLETE.name else divider.pairs
        made = zip(own, divide(own), strict=True)
        by_place |= {id(stage): replace(stage, notes=n, whole=True) for stage, n in made}
    return list(by_place.values())


def _shared(stages: Sequence[RehearsedStage]) -> dict[tuple[str, ...], list[RehearsedStage]]:
    """Return the stages that share work: they differ in the last part of their label."""
    found: dict[tuple[str, ...], list[RehearsedStage]] = {}
    for stage in stages:
        label, _, _ = stage.notes.stage.rpartition(":")
        verb = label.partition(":")[0]
        shared = verb in (COMPLETE.name, ANNOTATE.name, COMPARE.name)
        if shared and stage.planned is not None and smoked(stage.notes.stage) is None:
            found.setdefault((verb, label, str(stage.notes.iteration)), []).append(stage)
    return found


@dataclass(frozen=True, kw_only=True)
class _Divider:
    """Says what stages that share work ask of all prompts of a run."""

    run: Run
    config: RunConfig
    notes: Notes

    def completions(self, stages: Sequence[RehearsedStage]) -> Iterator[StageNotes]:
        """Give the notes of the models of a pool that complete prompts."""
        completers, group = self.run.completers, stages[0].group
        if completers is None:
            return
        drafts = sum(asked.calls for s in stages for asked in s.notes.asked.values())
        n = drafts // max(1, len(group.sample))
        weights, seed = completers.pool.weights, self.config.seed
        drawn = completers_drawn(weights, group.every, n, seed, total=group.total)
        for stage in stages:
            name = stage.notes.stage.rpartition(":")[2]
            asked = {
                a.served.name: scaled(a, round(drawn.get(name, 0)))
                for a in stage.notes.asked.values() or [self._completion(completers, stage, name)]
            }
            yield replace(stage.notes, asked=asked)

    def _completion(self, completers: Completers, stage: RehearsedStage, name: str) -> Asked:
        """Return what one completion asks of a model that got no prompt of the rehearsal."""
        (model,) = (model for model in completers.pool.models if model.name == name)
        prompt, mix = stage.group.sample[0], completers.mix_of(model)
        slot = Slot(model=name, number=0)
        principle = None if mix is None else principle_of(mix, prompt, slot, self.config.seed)
        models = self.run.models
        served = models.initial if model.is_policy else models.completers[name]
        sampling = engine_sampling(model.sampling_of(self.config.policy.sampling))
        messages = told(prompt.messages, principle, model)
        return asked_once(self.notes, stage.notes, served, messages, sampling)

    def pairs(self, stages: Sequence[RehearsedStage]) -> Iterator[StageNotes]:
        """Give the notes of the annotators of a panel."""
        annotates = stages[0].notes.stage.startswith(f"{ANNOTATE.name}:")
        panel = self.run.panels.training if annotates else self.run.panels.evaluation
        if panel is None:
            return
        named = {annotator.name: annotator for annotator in panel.annotators}
        rows = [self._rows(stage) for stage in stages]
        group = stages[0].group
        # M_0's answers are compared with themselves, which asks nobody.
        pairs = sum(row.first_id != row.second_id for own in rows for row in own)
        reference = self.config.assessment.reference
        # Of several sets each stage is of one, but their prompts tell which.
        exam = group.sample[0].exam if group.sample else None
        initial = not annotates and of_exam(reference, exam) == INITIAL
        shared = SharedPairs(
            config=self.config,
            panel=panel,
            prompts=group.total,
            pairs_a_prompt=pairs / max(1, len(group.sample)),
            order="both" if initial else None,
            keyed_on=None if annotates else EVALUATED_BY,
        )
        annotators = [named[stage.notes.stage.rpartition(":")[2]] for stage in stages]
        yield from asked_of_annotators(
            shared,
            [
                AnnotatorStage(
                    notes=stage.notes,
                    annotator=annotator,
                    served=self.run.models.annotators[annotator.role],
                    sampling=self._sampling(annotator, self.run.models.annotators[annotator.role]),
                    shown=shared.showings * sum(bool(row.text) for row in own),
                )
                for stage, annotator, own in zip(stages, annotators, rows, strict=True)
            ],
            self.notes,
        )

    def _sampling(self, annotator: AnyAnnotator, served: Served) -> Sampling:
        plain = Sampling(
            temperature=annotator.temperature,
            top_p=annotator.top_p,
            max_tokens=annotator.max_tokens,
        )
        return plain if annotator.short else with_room(self.run, served, plain)

    def _rows(self, stage: RehearsedStage) -> list[Preference]:
        if stage.planned is None:
            return []
        store = self.run.store
        keys = stage.planned.keys(store.journal)
        return [row for key in keys for row in store.rows(Preference, key)]
