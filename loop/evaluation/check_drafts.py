"""The check of an iteration's drafts: are the ones that critic and reward prefer right?

The loop learns from drafts, so the critic must be right about them. At most a thousand of them,
from some chunks of prompts, are verified when M_t is trained. Their scores are stored like the
scores of held-out answers, under a separate benchmark, so that a reader need not verify again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed
from ...stores.records import Candidate, Critique, Reward, Score
from ...stores.schemas import RowsByType
from ...stores.side_evals import smoke_test_of
from ..data.stage_names import critique_label, is_eval_set
from ..lake.query.critic_scores import DRAFTS, REWARD
from ..run.handles import T
from ..run.iteration import Iteration
from ..run.run import Verb, Work
from .assess import UNDRAWN
from .metrics import MeasuredAnswers, prompt_scores, score_of

CHECK_DRAFTS = Verb("check_drafts")
STAGE = f"measure:{DRAFTS}"
PROMPTS, MOST = 300, 1000
"""About how many prompts are looked at, and the most drafts that are verified."""
CRITIQUES, REWARDS = "critique:", "reward:"
BEST = "best"
"""The label of the best of several answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftUnits:
    """The units that hold some drafts, their critiques, and their rewards."""

    candidates: Sequence[str]
    critiques: Sequence[str]
    rewards: Sequence[str]

    @property
    def keys(self) -> list[str]:
        """The keys of all of them."""
        return [*self.candidates, *self.critiques, *self.rewards]


def check_drafts(it: Iteration) -> None:
    """Measure some drafts of the iteration, if a model rates them and something can be verified."""
    run = it.run
    if run.config.critic.kind == "verifier" or not _can_verify(it):
        return
    units = _units(it)
    if not units.critiques:
        return

    def make(_: Unit) -> RowsByType:
        return {Score: list(_scores(it, units))}

    params: Json = run.verifier.params(DRAFTS)
    work = Work(
        verb=CHECK_DRAFTS, params=params, upstream=tuple(units.keys), reads=lambda: [units.keys]
    )
    run.make(it.number, STAGE, work, make)


def _can_verify(it: Iteration) -> bool:
    prompts = (prompt for chunk in it.train_prompts.chunks for prompt in chunk)
    return any(it.run.verifier.can_verify(prompt) for prompt in prompts)


def _units(it: Iteration) -> DraftUnits:
    """Return the units of some chunks of each stage that critiques drafts."""
    journal = it.run.store.journal
    planned = {s.stage: s.planned for s in journal.stages() if s.iteration == it.number}
    critiques = [name for name in planned if _about_drafts(name)]
    drafts = list(dict.fromkeys(name for about in critiques for name in _drafts_of(about)))
    rewards = [f"{REWARDS}{name}" for name in drafts]
    chunks = _chunks(it, max((planned[name] for name in critiques), default=0))

    def keys(stages: Sequence[str]) -> list[str]:
        return [
            journal.key(it.number, stage, chunk)
            for stage in stages
            for chunk in chunks
            if chunk < planned.get(stage, 0)
        ]

    return DraftUnits(candidates=keys(drafts), critiques=keys(critiques), rewards=keys(rewards))


def _about_drafts(stage: str) -> bool:
    """Whether a stage holds critiques of drafts: the first of each, as of held-out answers."""
    first = stage.startswith(CRITIQUES) and critique_label(stage) == stage
    evaluated = is_eval_set(stage) or stage.removeprefix(CRITIQUES).split(":")[0] == BEST
    return first and not evaluated and smoke_test_of(stage) is None


def _drafts_of(critiques: str) -> list[str]:
    """Return the stages whose answers a stage critiqued."""
    return critiques.removeprefix(CRITIQUES).split("+")


def _chunks(it: Iteration, there: int) -> list[int]:
    """Return which chunks are looked at, in an order by the seed."""
    seed, size = it.run.config.seed, it.run.config.prompts.chunk
    order = sorted(range(there), key=lambda n: derive_seed(seed, DRAFTS, it.number, n))
    return order[: -(-PROMPTS // size)]


def _scores(it: Iteration, units: DraftUnits) -> Iterator[Score]:
    critiques = {row.candidate_id: row for row in _rows(it, Critique, units.critiques)}
    drawn = [
        row
        for row in _rows(it, Candidate, units.candidates)
        if row.candidate_id in critiques and row.finish_reason not in UNDRAWN
    ]
    seed = it.run.config.seed
    drafts = sorted(drawn, key=lambda row: derive_seed(seed, DRAFTS, row.candidate_id))[:MOST]
    items = [(it.run.prompts[row.prompt_id], row.text) for row in drafts]
    measured = MeasuredAnswers(
        benchmark=DRAFTS,
        checkpoint_id=it.policy.identity,
        candidates=drafts,
        verdicts=it.run.verifier.verify(items),
        critiques=critiques,
    )
    yield from prompt_scores(measured)
    chosen = {row.candidate_id for row in drafts}
    for row in _rows(it, Reward, units.rewards):
        if row.candidate_id in chosen and row.score is not None:
            prompt, candidate = row.prompt_id, row.candidate_id
            yield score_of(it, DRAFTS, REWARD, row.score, prompt=prompt, candidate=candidate)


def _rows(it: Iteration, row_type: type[T], keys: Sequence[str]) -> Iterator[T]:
    """Yield the rows of units, as soon as they are committed."""
    for key in keys:
        it.run.flow.await_unit(key)
        yield from it.run.store.rows(row_type, key)
