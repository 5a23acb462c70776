"""What a run takes at any scale, by arithmetic: tokens, GPU-hours, rows, bytes, journal, money.

The run's own recipe is rehearsed (`rehearsal`), over the user's prompts or invented ones, and told
of as many prompts as are asked for; the rest is multiplication by rates. Rates of GPUs are assumed,
and printed; what rows, units and the head of a run cost was measured (benchmarks/members.py).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...configs.group_methods import OnlineSettings
from ...policies.memory.shapes import UnknownShapeError, shape_of
from ...policies.trainers.job import ONLINE
from ...stores.beside import smoked
from ...stores.keys import Json
from ..run.pump import SLICE
from .plan import Plan, PlannedStage
from .rehearsal import Rehearsal
from .stand_ins import LETTERS_A_TOKEN

BILLION = 1e9
LITTLE = 0.001
"""A verb with this share of the requests, or less, has no line of its own."""
HOUR = 3600.0
RATED = 8.0
"""The billions of parameters of the model whose rates are assumed; others go by their size."""
SIZE_IN_NAME = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?)[bB](?![a-zA-Z])")

ROW, LETTER, CRITIQUE_LETTER = 40.0, 0.315, 0.356
"""Bytes in Parquet: of a row without its text, of a letter of an answer, and of a critique."""
REWARD_ROW = 29.0
UNIT = 670.0
"""Bytes of the journal for a unit of one table, packed."""
SEQUENCES: Mapping[str, float] = {"dpo": 2, "reward": 2, "ppo": 2, "kto": 1.5}
"""What a training reads of each of its rows; of other methods' rows, one answer.

The other half of KTO's is the answer that it asks for the KL, forwards alone and of the reference,
too: with `REFERENCE` two thirds of a sequence."""
REFERENCE = 4 / 3
"""What a token of a method costs that asks the reference policy, too, and goes only forwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What is assumed: tokens a second of one GPU with a model of `RATED` billion parameters.

    `drawn_s` are those of answers, `read_s` of prompts, `trained_s` of a training. An answer has
    `answer_tokens` where the lake has none to measure, an invented prompt `prompt_tokens`. A model
    has `size` where neither its folder nor its name says it. `gpu_hour`: US dollars for an hour.
    """

    gpus: int = 8
    drawn_s: int = 2000
    read_s: int = 30_000
    trained_s: int = 5800
    answer_tokens: int = 300
    prompt_tokens: int = 150
    size: float = RATED
    gpu_hour: float = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledVerb:
    """What all stages of a verb take; `trained` are tokens that a training reads."""

    verb: str
    requests: int = 0
    prompt_tokens: float = 0.0
    answer_tokens: float = 0.0
    trained: float = 0.0
    gpu_hours: float = 0.0
    money: float = 0.0
    rows: int = 0
    row_bytes: float = 0.0
    units: int = 0
    transactions: int = 0

    def __add__(self, other: "ScaledVerb") -> "ScaledVerb":
        """Return the sum, under the first one's name."""
        mine, theirs = asdict(self), asdict(other)
        return ScaledVerb(
            **{name: mine[name] + theirs[name] for name in mine if name != "verb"}, verb=self.verb
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What one process that runs a loop must do, and its `limit`, above which it gives way."""

    what: str
    needed: float
    limit: float

    @property
    def share(self) -> float:
        """How much of the limit is needed: above 1 it gives way."""
        return self.needed / self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledRun:
    """What a run of so many prompts takes. `invented` says that prompts of a length stand in."""

    recipe: str
    iterations: int
    prompts: int
    invented: bool
    rates: Rates
    verbs: tuple[ScaledVerb, ...]
    unpriced: tuple[str, ...]
    measured: bool

    @property
    def total(self) -> ScaledVerb:
        """The sum of all verbs."""
        return sum(self.verbs, ScaledVerb(verb="total"))

    @property
    def hours(self) -> float:
        """Wall time, if the GPUs never wait."""
        return self.total.gpu_hours / self.rates.gpus

    @property
    def journal_bytes(self) -> float:
        """The size of the journal at the end."""
        return UNIT * self.total.units

    @property
    def ceilings(self) -> list[Ceiling]:
        """What one head must do, that which gives way first at the beginning."""
        return sorted(_ceilings(self), key=lambda ceiling: -ceiling.share)

    def as_json(self) -> dict[str, Json]:
        """Return all of it as a document."""
        more = {
            "total": asdict(self.total),
            "hours": self.hours,
            "journal_bytes": self.journal_bytes,
            "gpu_money": self.total.gpu_hours * self.rates.gpu_hour,
            "ceilings": [{**asdict(c), "share": c.share} for c in self.ceilings],
        }
        return {**asdict(self), **more}


def scale_of(
    rehearsal: Rehearsal,
    plan: Plan,
    rates: Rates,
    *,
    invented: bool,
    measured: bool,
) -> ScaledRun:
    """Return what a planned run takes; `measured`: the lengths of its answers were, before."""
    by_verb: dict[str, ScaledVerb] = {}
    scaling = _StageArithmetic(rehearsal, rates)
    for stage in (stage for stage in plan.stages if smoked(stage.stage) is None):
        found = scaling.stage(stage)
        by_verb[found.verb] = by_verb.get(found.verb, ScaledVerb(verb=found.verb)) + found
    return ScaledRun(
        recipe=plan.recipe,
        iterations=plan.iterations,
        prompts=rehearsal.sample.share.total,
        invented=invented,
        rates=rates,
        verbs=tuple(_told(filter(_is_work, by_verb.values()))),
        unpriced=plan.unpriced,
        measured=measured,
    )


def _is_work(verb: ScaledVerb) -> bool:
    return bool(verb.requests or verb.trained)


def _told(verbs: Iterable[ScaledVerb]) -> Iterator[ScaledVerb]:
    """Give the verbs, the costliest first, and as one those that are next to nothing."""
    found = sorted(verbs, key=lambda verb: -verb.gpu_hours)
    least = LITTLE * sum(verb.requests for verb in found)
    yield from (verb for verb in found if verb.requests >= least or verb.trained)
    others = [verb for verb in found if verb.requests < least and not verb.trained]
    if others:
        yield sum(others, ScaledVerb(verb="others"))


class _StageArithmetic:
    """From a planned stage to what it takes."""

    def __init__(self, rehearsal: Rehearsal, rates: Rates) -> None:
        self._config = config = rehearsal.config
        self._rates = rates
        noted = [stage.notes for stage in rehearsal.stages]
        self._served = {a.served.name: a.served for notes in noted for a in notes.asked.values()}
        self._jobs = {notes.stage: notes.job for notes in noted if notes.job is not None}
        drawn = next((a for n in noted if n.stage == "sample" for a in n.asked.values()), None)
        asked = drawn.prompt_tokens / drawn.calls if drawn else rates.prompt_tokens
        answered = drawn.tokens / drawn.calls if drawn else rates.answer_tokens
        self._prompt, self._answer = asked, answered
        self._reward = rehearsal.models.reward_id or config.policy.model
        self._policy = config.policy.model

    def stage(self, stage: PlannedStage) -> ScaledVerb:
        """Return what a stage takes."""
        slices = math.ceil(stage.calls / SLICE)
        found = ScaledVerb(
            verb=stage.stage.partition(":")[0],
            requests=stage.calls,
            gpu_hours=self._drawing(stage),
            units=stage.units,
            transactions=max(slices, stage.units),
        )
        if trained := self._trained(stage):
            hours = trained * self._by_size(self._policy) / self._rates.trained_s / HOUR
            row = ROW + LETTER * LETTERS_A_TOKEN * (self._prompt + 2 * self._answer)
            return replace(
                found,
                trained=trained,
                gpu_hours=found.gpu_hours + hours,
                rows=stage.rows,
                row_bytes=row * stage.rows,
            )
        if stage.scored:
            tokens = stage.scored * (self._prompt + self._answer)
            return replace(
                found,
                requests=stage.scored,
                prompt_tokens=tokens,
                gpu_hours=tokens * self._by_size(self._reward) / self._rates.read_s / HOUR,
                rows=stage.scored,
                row_bytes=REWARD_ROW * stage.scored,
            )
        letter = CRITIQUE_LETTER if stage.judge_calls else LETTER
        return replace(
            found,
            prompt_tokens=stage.prompt_tokens,
            answer_tokens=stage.tokens,
            money=stage.money,
            rows=stage.calls,
            row_bytes=ROW * stage.calls + letter * LETTERS_A_TOKEN * stage.tokens,
        )

    def _drawing(self, stage: PlannedStage) -> float:
        """Return the GPU-hours of what a stage asks of models that run here."""
        served = [self._served[name] for name in stage.model.split(", ") if name in self._served]
        here = [one for one in served if not one.is_elsewhere]
        if not here:
            return 0.0
        seconds = stage.prompt_tokens / self._rates.read_s + stage.tokens / self._rates.drawn_s
        return seconds * max(self._by_size(one.location, one.name) for one in here) / HOUR

    def _trained(self, stage: PlannedStage) -> float:
        """Return the tokens that a training reads, weighed by what they cost."""
        job = self._jobs.get(stage.stage)
        if job is None or not stage.steps:
            return 0.0
        if job.online is not None:
            passes = job.settings.inner_epochs if isinstance(job.settings, OnlineSettings) else 1
            tokens = stage.calls * (self._prompt + self._answer) * passes
        else:
            tokens = stage.rows * job.settings.epochs * (self._prompt + self._answer)
        reads = SEQUENCES.get(job.method, 1) * tokens
        return reads * (REFERENCE if job.method in ("dpo", "kto", *ONLINE) else 1.0)

    def _by_size(self, *names: str) -> float:
        """Return how much slower than the rated model one is."""
        return (size_of(*names) or self._rates.size) / RATED


def size_of(*names: str) -> float | None:
    """Return a model's billions of parameters, by its folder, or by a name that tells them."""
    for name in names:
        try:
            return shape_of(Path(name)).parameters / BILLION
        except UnknownShapeError:
            found = SIZE_IN_NAME.findall(name)
            if found:
                return float(found[-1])
    return None


MEMORY = 64 * 2.0**30
"""Bytes of memory that the process is assumed to have; the other limits were measured."""
PROMPT, PROMPT_LETTER = 400.0, 1.0
"""Bytes of memory for a prompt, and for each letter of it."""
SLICES_S, ROWS_S, DIGEST_S = 240.0, 223_000.0, 60_000.0
DAY = 24 * HOUR


def _ceilings(scale: ScaledRun) -> Iterator[Ceiling]:
    """Give what one head must do at this scale."""
    total, seconds = scale.total, max(1.0, scale.hours * HOUR)
    letters = LETTERS_A_TOKEN * scale.rates.prompt_tokens
    yield Ceiling(
        what="slices a second, from request to row, by one core",
        needed=total.requests / SLICE / seconds,
        limit=SLICES_S,
    )
    yield Ceiling(
        what="bytes of memory: all prompts are held",
        needed=scale.prompts * (PROMPT + PROMPT_LETTER * letters),
        limit=MEMORY,
    )
    yield Ceiling(
        what="rows a second, written as Parquet",
        needed=total.rows / seconds,
        limit=ROWS_S,
    )
    yield Ceiling(
        what="rows a day, read again for a digest",
        needed=total.rows,
        limit=DIGEST_S * DAY,
    )
