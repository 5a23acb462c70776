"""The choice of a run's train prompts: filtered by rules and reviews, and stored as rows.

The choice is made once, before the first iteration, and stored under iteration 0: prompts dropped
by rules, each review, and prompts dropped by reviews. A prompt whose review cannot be read within
`prompts.quality.attempts` replies is stored unscored, with the reason, and kept. An iteration then
takes its share of the rest, filling up classes of intentions that would be too rare first.

Prompts whose answers all get a similar reward teach a policy nothing (ChatGLM-RLHF, Section 3.4).
The policy answers each prompt of an iteration K times; if the variance of r(x, y_1) .. r(x, y_K) is
below the margin epsilon, the prompt is skipped. A prompt with fewer than two scored answers is
kept: only measured prompts are dropped.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import pvariance

from ...configs.recipes import Varied
from ...configs.schema import ConfigError
from ...critics.quality.prompt_review import ReviewedPrompt, Reviewer
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, digest, row_id
from ...stores.records import SCORED, FilterCount, Prompt, PromptReview, Reward, RewardModel
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts, ids_by_fate, keeps
from ..data.prompt_rules import Rules
from ..data.row_notes import FILTER
from ..run.handles import Planned, Prompts, chunk_prompts, content_key
from ..run.iteration import Iteration
from ..run.models import QUALITY as QUALITY_JUDGE
from ..run.run import Run, Verb, Work
from ..run.stop import NothingToTrainOn
from .judging import PENDING, JudgedStage, Posed, judge_client, judge_params
from .reward import reward
from .sample import sample
from .unscored import REVIEW

KEEP_PROMPTS = Verb("prompts")
KEEP_RECEIPTS = Verb(FILTER)


def keep_prompts(
    run: Run, label: str, chunks: Sequence[Sequence[Prompt]], *, params: Json = None
) -> None:
    """Commit prompts, a chunk a unit, under iteration 0."""
    keys = [content_key(chunk) for chunk in chunks]
    work = Work(
        verb=KEEP_PROMPTS,
        params=params,
        upstream=tuple(keys),
        reads=lambda: [(key,) for key in keys],
    )
    run.make(0, label, work, lambda unit: {Prompt: chunks[unit.chunk]})


def keep_filter_counts(run: Run, left_out: Sequence[FilterCount]) -> None:
    """Commit filter counts of the rows of the prompts' files, if rows may be left out."""
    if not left_out:
        return
    counts_digest = digest([[counted.count, *counted.examples] for counted in left_out])
    work = Work(
        verb=KEEP_RECEIPTS, params=None, upstream=(counts_digest,), reads=lambda: [(counts_digest,)]
    )
    run.make(0, FILTER, work, lambda _unit: {FilterCount: left_out})


FILTER_PROMPTS, REVIEW_PROMPTS = Verb("filter"), Verb("review")
ITERATION = 0
RULES, INTENTIONS = "prompts:rules", "prompts:intentions"
QUALITY = "prompts:quality"
UNJUDGED = f"{KEPT}: unjudged"
VARIANCE, LOW_VARIANCE, UNMEASURED = "prompts:variance", "low_variance", f"{KEPT}: unmeasured"
FEWEST = 2
"""Scores that have a variance."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suitable:
    """The prompts that are left, in the order in which iterations take them.

    `intentions` is the class of each prompt that has one; `least` is how many of each class an
    iteration should have.
    """

    prompts: Sequence[Prompt]
    intentions: Mapping[str, str] = field(default_factory=dict[str, str])
    least: int = 0

    def share(self, number: int, size: int | None) -> list[Prompt]:
        """Return iteration `number`'s prompts: the next `size`, starting over at the end.

        The first `least` prompts of each class in the queue are taken first, classes taking turns;
        the rest of the iteration is filled in the queue's order. Prompts that were passed over come
        first in the next iteration; prompts that were taken move to the end of the queue.
        """
        count = len(self.prompts)
        taken = min(size or count, count)
        if not self.least:
            first = (number - 1) * taken
            return [self.prompts[(first + i) % count] for i in range(taken)]
        queue, share = list(self.prompts), list[Prompt]()
        for _ in range(number):
            seen, ranks = Counter[str](), list[int]()
            for prompt in queue:
                intention = self.intentions.get(prompt.prompt_id)
                ranks.append(self.least if intention is None else min(seen[intention], self.least))
                seen[intention or ""] += 1
            chosen = {*sorted(range(count), key=lambda place: ranks[place])[:taken]}
            share = [prompt for place, prompt in enumerate(queue) if place in chosen]
            queue = [prompt for place, prompt in enumerate(queue) if place not in chosen] + share
        return share


def suitable(run: Run, train: Sequence[Prompt]) -> Suitable:
    """Return the prompts that pass the configured filters.

    Raises:
        NothingToTrainOn: if no prompt is left.
    """
    filters = run.filters
    kept = list(train)
    if filters.rules.on:
        kept = _by_rules(run, kept, filters.rules)
        _require_some(kept, "prompts.rules")
    if filters.reviewer is None:
        return Suitable(prompts=kept)
    kept, classes = _by_quality(run, kept, filters.reviewer)
    _require_some(kept, "prompts.quality")
    least = run.config.prompts.quality.per_intention
    return Suitable(prompts=kept, intentions=classes, least=least)


def _by_rules(run: Run, prompts: Sequence[Prompt], rules: Rules) -> list[Prompt]:
    """Commit the rules' decisions on the prompts, and return the kept ones."""
    every = list(run.prompts.values())
    fates = rules.fates(prompts, every)
    # How scripts are counted; only the keys of runs with this rule contain it.
    counted: dict[str, Json] = {"scripts_of": "words"} if rules.config.scripts else {}
    params, content = {**rules.params(every), **counted}, content_key(prompts)
    work = Work(verb=FILTER_PROMPTS, params=params, upstream=(content,), reads=lambda: [(content,)])
    counts = filter_counts(ITERATION, RULES, "prompts", ids_by_fate(prompts, fates))
    run.make(ITERATION, RULES, work, lambda _: {FilterCount: counts})
    return _kept_prompts(prompts, fates)


def review_prompts(
    run: Run,
    prompts: Sequence[Prompt],
    reviewer: Reviewer,
    *,
    label: str = REVIEW,
    purpose: str | None = None,
) -> tuple[Planned, list[PromptReview]]:
    """Commit a review of each prompt; return the stage, and the reviews in the prompts' order.

    `purpose` is part of the keys, as in `sample`.
    """
    chunks = chunk_prompts(prompts, run.config.prompts.chunk)
    config = run.config.prompts.quality
    reviewing = Reviewing(
        run=run,
        iteration=ITERATION,
        client=judge_client(run, run.models.judge(QUALITY_JUDGE), config),
        attempts=config.attempts,
        reviewer=reviewer,
        prompts=chunks,
    )
    work = Work(
        verb=REVIEW_PROMPTS,
        params={"of": reviewing.params, "for": purpose} if purpose else reviewing.params,
        upstream=(chunks.identity,),
        reads=chunks.each_key,
    )
    planned = reviewing.plan(label, work)
    run.flow.settle(planned)
    keys = planned.keys(run.store.journal)
    return planned, [row for key in keys for row in run.store.rows(PromptReview, key)]


@dataclass(frozen=True, kw_only=True)
class Reviewing(JudgedStage[Prompt, ReviewedPrompt, PromptReview]):
    """A stage of reviews, one a prompt, a unit for each chunk of `prompts`."""

    row_type = PromptReview
    reviewer: Reviewer
    prompts: Prompts

    def _depends_on(self) -> Mapping[str, Json]:
        params = judge_params(self.run, self.judge, self.run.config.prompts.quality)
        return {"reviewer": self.reviewer.digest, **params}

    def _subjects(self, chunk: int) -> Iterator[tuple[Prompt, list[PromptReview]]]:
        for prompt in self.prompts.chunks[chunk]:
            review = PromptReview(
                prompt_id=prompt.prompt_id,
                iteration=self.iteration,
                judge=self.judge.identity,
                aspects=(),
                intention=None,
                status=PENDING,
                attempts=0,
                text="",
            )
            yield prompt, [review]

    def _pose(self, subject: Prompt, attempt: int) -> Posed[ReviewedPrompt]:
        name = row_id("review", subject.prompt_id)
        question = self.reviewer.ask(subject.instruction, self.guard(name))
        seed = derive_seed(self.run.config.seed, "review", subject.prompt_id, attempt)
        return Posed(question, name, seed)


def _by_quality(
    run: Run, prompts: Sequence[Prompt], reviewer: Reviewer
) -> tuple[list[Prompt], dict[str, str]]:
    """Commit the outcomes of the reviews; return the kept prompts, and all classes."""
    config = run.config.prompts.quality
    planned, reviews = review_prompts(run, prompts, reviewer)
    fates = [fate(review, config.least) for review in reviews]
    kept = _kept_prompts(prompts, fates)
    classes = {r.prompt_id: r.intention for r in reviews if r.intention is not None}
    work = Work(
        verb=FILTER_PROMPTS,
        params={"least": config.least, "per_intention": config.per_intention},
        upstream=(planned.identity,),
        reads=lambda: [planned.keys(run.store.journal)],
    )

    def make(_: Unit) -> RowsByType:
        rows = filter_counts(ITERATION, QUALITY, "prompts", ids_by_fate(prompts, fates))
        if reviewer.classes:
            counted = _by_class(run, reviewer.classes, kept, classes)
            rows += filter_counts(ITERATION, INTENTIONS, "prompts", counted)
        return {FilterCount: rows}

    run.decide_by(run.make(ITERATION, QUALITY, work, make))
    return kept, classes


def fate(review: PromptReview, least: int) -> str:
    """Return the outcome of a prompt: `kept`, or the first aspect that is rated below `least`.

    Only judged prompts can be dropped: a prompt whose review could not be read is kept.
    """
    if review.status != SCORED:
        return UNJUDGED
    low = (a.name for a in review.aspects if a.rating is not None and a.rating < least)
    return next((f"low_{name}" for name in low), KEPT)


def _by_class(
    run: Run, names: Sequence[str], prompts: Sequence[Prompt], classes: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the ids of each class's prompts; log classes with too few for one iteration.

    The outcome of these is marked.
    """
    least = run.config.prompts.quality.per_intention
    found: dict[str, list[str]] = {name: [] for name in names}
    unknown = list[str]()
    for prompt in prompts:
        found.get(classes.get(prompt.prompt_id, ""), unknown).append(prompt.prompt_id)
    short = {name: f", short of {least}" for name, ids in found.items() if len(ids) < least}
    if short:
        listing = "; ".join(
            f"{name}{mark} (it has {len(found[name])})" for name, mark in short.items()
        )
        text = f"prompts of these intentions are too few: {listing}"
        run.reporter.note(text, "warning", code="W-FEW-PROMPTS")
    outcomes = {f"{KEPT}: {name}{short.get(name, '')}": ids for name, ids in found.items()}
    return {**outcomes, **({f"{KEPT}: {UNKNOWN}": unknown} if unknown else {})}


def _kept_prompts(prompts: Sequence[Prompt], fates: Sequence[str]) -> list[Prompt]:
    return [prompt for prompt, outcome in zip(prompts, fates, strict=True) if keeps(outcome)]


def _require_some(prompts: Sequence[Prompt], settings: str) -> None:
    if not prompts:
        raise NothingToTrainOn(
            f"{settings} dropped every prompt to train on: `lpfloop status` counts them by filter; "
            "loosen it in another run"
        )


def filter_variance(it: Iteration, prompts: Prompts, model: RewardModel | None) -> Prompts:
    """The prompts whose answers y_1 .. y_K ~ pi(x) differ in r(x, y), if a margin is set.

    Raises:
        ConfigError: without a reward model.
        NothingToTrainOn: if no prompt is left.
    """
    it.require(Varied, "varied")
    config = it.run.config.prompts.variance
    if config.margin is None:
        return prompts
    if model is None and not it.has_reward:
        raise ConfigError(
            "prompts.variance.margin needs reward.model, as this recipe trains no reward model "
            "before it"
        )
    answers = sample(it, prompts, n=config.k, label="sample:variance", purpose="variance")
    rewards, margin = reward(it, answers, by=model), config.margin
    fates = [
        _fates(chunk, it.chunk(rewards, number), margin)
        for number, chunk in enumerate(prompts.chunks)
    ]

    def make(unit: Unit) -> RowsByType:
        outcomes = ids_by_fate(prompts.chunks[unit.chunk], fates[unit.chunk])
        return {FilterCount: filter_counts(it.number, VARIANCE, "prompts", outcomes)}

    work = it.work(FILTER_PROMPTS, {"margin": margin}, answers, rewards)
    it.run.make(it.number, VARIANCE, work, make)
    met = zip(prompts.chunks, fates, strict=True)
    kept = [prompt for chunk, outcomes in met for prompt in _kept_prompts(chunk, outcomes)]
    if not kept:
        raise NothingToTrainOn(
            f"the answers to every prompt of iteration {it.number} differ by less than "
            f"prompts.variance.margin ({margin}) in reward; lower it in another run"
        )
    return chunk_prompts(kept, it.run.config.prompts.chunk)


def _fates(prompts: Sequence[Prompt], rewards: Sequence[Reward], margin: float) -> list[str]:
    scores: dict[str, list[float]] = {prompt.prompt_id: [] for prompt in prompts}
    for row in rewards:
        if row.score is not None:
            scores[row.prompt_id].append(row.score)
    return [variance_fate(scores[prompt.prompt_id], margin) for prompt in prompts]


def variance_fate(scores: Sequence[float], margin: float) -> str:
    """Return the fate of a prompt whose answers have these rewards."""
    if len(scores) < FEWEST:
        return UNMEASURED
    return LOW_VARIANCE if pvariance(scores) < margin else KEPT
