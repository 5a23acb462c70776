"""The verdict on M_t: is it better than M_{t-1}, than the best so far, than M_0?

Each comparison is paired by prompt and robust to clusters of correlated prompts
(`statistics.decisions`). A run looks once an iteration, and its error rate is shared among these
looks; at one look it is shared among the tasks, and among the families. Dev prompts decide which
policy is the best and where the next iteration begins; held-out prompts are only reported on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import polars as pl

from ...configs.load import semantic
from ...stores.frames import as_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import (
    Against,
    Checkpoint,
    PolicyStanding,
    PolicyVerdict,
    Prompt,
    Scope,
    Score,
    Split,
)
from ...stores.schemas import RowsByType
from ..data.prompt_clusters import clusters_of
from ..data.splits import DEV
from ..lake.query.policy_figures import (
    USUAL,
    Values,
    metrics_of,
    undecided_answers,
    values_of,
)
from ..lake.statistics.decisions import PairedResults, decide, level_of_look
from ..run.iteration import Iteration
from ..run.reporter import log_event
from ..run.run import Verb, Work
from .checkpoint_history import CheckpointHistory, standing_after, verdict_text
from .metrics import measured_keys
from .pairwise_verdicts import ERROR_RATE, WORTHWHILE

VERDICT = Verb("verdict")


def verdict_stage(split: str) -> str:
    """Return the name of the stage that holds the verdicts on a split."""
    return f"verdict:{split}"


def commit_verdicts(
    it: Iteration, course: CheckpointHistory, prompts: Sequence[Prompt], split: Split
) -> CheckpointHistory:
    """Commit the verdicts on M_t, the policy of `it`, by its scores on a split's prompts.

    `course` is the run's course before M_t. Return the new course; the verdicts on dev prompts
    decide the standing of M_t: which policy is the best, and with which one the next iteration
    begins.
    """
    compared = course.compared
    numbers = sorted({it.number, *(other.iteration for other in compared.values())})
    keys = [key for number in numbers for key in measured_keys(it, number, split)]
    config, clusters = it.run.config.verdict, clusters_of(prompts)
    found: dict[Against, tuple[bool, ...]] = {
        against: course.found.get((split, against), ()) for against in compared
    }

    def make(_: Unit) -> RowsByType:
        look = ScoreLook(
            made=it.parent,
            split=split,
            scopes=tuple(_scopes(prompts)),
            clusters=clusters,
            scores=pl.concat(_scores(it, key) for key in keys) if keys else None,
            alphas={
                against: level_of_look(ERROR_RATE, it.number - course.first, earlier)
                for against, earlier in found.items()
            },
            worthwhile=WORTHWHILE,
        )
        rows = [row for against, other in compared.items() for row in look.at(against, other)]
        if look.left_out:
            it.run.reporter.note(
                f"{look.left_out} {split} prompts are not counted: the math of an answer to each "
                "could not be decided (math_undecided)",
                "warning",
                code="W-UNDECIDED",
                iteration=it.number,
                prompts=look.left_out,
            )
        if split != DEV:
            return {PolicyVerdict: rows}
        standing = standing_after(course, it.parent, rows, config)
        log_event(verdict_text(standing, rows), "verdict", **asdict(standing))
        return {PolicyVerdict: rows, PolicyStanding: [standing]}

    params: Json = {
        "split": split,
        "compared": {against: other.checkpoint_id for against, other in compared.items()},
        "found": {against: list(earlier) for against, earlier in found.items()},
        "settings": semantic(config),
        "counted": [_group_parts(prompt, clusters[prompt.prompt_id]) for prompt in prompts],
    }
    work = Work(
        verb=VERDICT,
        params=params,
        upstream=tuple(keys),
        reads=lambda: [keys],
        also_on=_verdicts_before(it, split),
    )
    planned = it.run.make(it.number, verdict_stage(split), work, make)
    key = planned.key(it.run.store.journal, 0)
    course = course.finding(it.run.store.rows(PolicyVerdict, key))
    if split != DEV:
        return course
    it.run.decide_by(planned)
    (standing,) = it.run.store.rows(PolicyStanding, key)
    return course.having(it.parent, standing)


def _group_parts(prompt: Prompt, cluster: str) -> Json:
    """Return the parts of a prompt that decide its groups in the verdicts."""
    eval_set = () if prompt.eval_set is None else (prompt.eval_set,)
    return [prompt.prompt_id, prompt.task, prompt.family, cluster, *eval_set]


def _verdicts_before(it: Iteration, split: str) -> tuple[str, ...]:
    """Return the key of the last verdicts on a split: the level of this look depends on them."""
    journal, label = it.run.store.journal, verdict_stage(split)
    looks = [s.iteration for s in journal.stages() if s.stage == label and s.iteration < it.number]
    return (journal.key(max(looks), label, 0),) if looks else ()


def _scores(it: Iteration, key: str) -> pl.DataFrame:
    return as_frame(it.run.store.table(Score, key))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoped:
    """Prompts that are counted together, by their ids; `among` scopes share an error rate."""

    scope: Scope
    name: str
    ids: tuple[str, ...]
    among: int = 1


def _scopes(prompts: Sequence[Prompt]) -> Iterator[Scoped]:
    """Give all prompts, and the prompts of each eval set, of each task, and of each family."""
    yield Scoped(scope="all", name="", ids=tuple(sorted(p.prompt_id for p in prompts)))
    scopes: tuple[tuple[Scope, list[tuple[str, str]]], ...] = (
        ("eval_set", [(p.eval_set, p.prompt_id) for p in prompts if p.eval_set is not None]),
        ("task", [(p.task, p.prompt_id) for p in prompts]),
        ("family", [(p.family, p.prompt_id) for p in prompts if p.family is not None]),
    )
    for scope, named in scopes:
        names = sorted({name for name, _ in named})
        for name in names:
            ids = tuple(sorted(prompt for own, prompt in named if own == name))
            yield Scoped(scope=scope, name=name, ids=ids, among=len(names))


@dataclass(frozen=True, kw_only=True)
class ScoreLook:
    """One look at the scores: M_t against other policies; `alphas` are the levels for each."""

    made: Checkpoint
    split: Split
    scopes: Sequence[Scoped]
    clusters: Mapping[str, str]
    scores: pl.DataFrame | None
    alphas: Mapping[Against, float]
    worthwhile: float

    def at(self, against: Against, other: Checkpoint) -> Iterator[PolicyVerdict]:
        """Yield the verdicts against another policy, on each scope that both were measured on."""
        for scoped in self.scopes:
            for figure, values in self._figures:
                before = values.get(other.iteration, {})
                after = values.get(self.made.iteration, {})
                ids = [prompt for prompt in scoped.ids if prompt in before and prompt in after]
                if ids:
                    results = PairedResults(
                        before=[before[prompt] for prompt in ids],
                        after=[after[prompt] for prompt in ids],
                        clusters=self._clusters(scoped, ids),
                    )
                    yield self._row(against, other, scoped, figure, results)
                    break

    @property
    def left_out(self) -> int:
        """How many prompts have an answer whose math could not be decided."""
        if self.scores is None:
            return 0
        found = undecided_answers(self.scores.lazy()).select("prompt_id").unique()
        return found.collect().height

    @cached_property
    def _figures(self) -> list[tuple[str, Mapping[int, Values]]]:
        """The figures that were measured, the most important first."""
        if self.scores is None:
            return []
        names = self.scores["metric"].unique().sort().to_list()
        found = [figure for figure in USUAL if metrics_of(figure, names)]
        return [(figure, values_of(self.scores.lazy(), figure, names)) for figure in found]

    def _clusters(self, scoped: Scoped, ids: Sequence[str]) -> list[str]:
        """Return the clusters; in a family that is one cluster, it is the prompts that vary."""
        found = [self.clusters[prompt] for prompt in ids]
        return list(ids) if scoped.scope == "family" and len(set(found)) == 1 else found

    def _row(
        self,
        against: Against,
        other: Checkpoint,
        scoped: Scoped,
        figure: str,
        results: PairedResults,
    ) -> PolicyVerdict:
        alpha = self.alphas[against] / scoped.among
        found = decide(results, alpha=alpha, worthwhile=self.worthwhile)
        return PolicyVerdict(
            iteration=self.made.iteration,
            checkpoint_id=self.made.checkpoint_id,
            against=against,
            other_id=other.checkpoint_id,
            other_iteration=other.iteration,
            split=self.split,
            figure=figure,
            scope=scoped.scope,
            name=scoped.name,
            n=found.n,
            clusters=found.clusters,
            before=found.before,
            after=found.after,
            difference=found.difference,
            low=found.low,
            high=found.high,
            gained=found.gained,
            lost=found.lost,
            answer=found.answer,
            needed=found.needed,
            level=alpha,
        )
