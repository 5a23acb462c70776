"""Runs side by side: each method's results and cost (AlpacaFarm, Table 2).

A run's result is the policy that its verdicts keep as the best, or the last measured one if it
lacks verdicts, or its best answers if it chooses among samples. `RUN:M_1@20` names a policy that
was published at a training step instead, and `RUN:best-of-4` a smaller number of samples. Runs of
one method under several seeds can be averaged.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import polars as pl

from ...critics.status import MATH_UNDECIDED
from ...stores.frames import frame_rows
from ...stores.lake import CHECKPOINTS, RunReader
from ...stores.records import PolicyVerdict
from ..data.splits import HELD_OUT, eval_set_benchmark
from ..data.stage_names import step_benchmark
from ..lake.query.best_model import best_kept
from ..lake.query.critic_scores import DRAFTS
from ..lake.query.figures import clustered_means, measured_metrics
from ..lake.query.measured_change import MeasuredChange, measured_change
from ..lake.query.model_names import model_of
from ..lake.query.policy_figures import (
    APPROVAL,
    VERIFIED,
    clusters_in,
    measured_on,
    value_rows,
)
from ..lake.query.runs import NoSuchRunError, open_run
from ..lake.query.vocabulary import judge_kind, judges_of
from ..lake.statistics.decisions import PairedResults

INITIAL = "M_0"
BEST_OF, BEST_OF_N = "best-of", "best-of-n"
SETS_OF_STEP = rf"^(step-[0-9]+:){HELD_OUT}:.*$"
"""The benchmarks of a step's policy on named sets of held-out prompts."""
UNNAMED = "unnamed"
SCORE = ("iteration", "checkpoint_id", "benchmark", "metric", "prompt_id", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Which prompts count: of one task, of one set of held-out prompts, or all."""

    task: str | None = None
    eval_set: str | None = None

    def __str__(self) -> str:
        task = "" if self.task is None else f" of task {self.task}"
        return task if self.eval_set is None else f"{task} on {self.eval_set}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A mean over `n` prompts and its standard error, clustered if prompts name clusters."""

    value: float
    stderr: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a method in one run, or averaged over several.

    `scores` holds the prompt-level scores behind the numbers, by metric and prompt; `clusters` are
    the prompts' clusters. `judges` are the judges that measured each metric: several, if the runs
    had different ones. `tokens` and `hours` are a run's mean total spending; the policy that it
    began with was free. `verdict` is the run's own on this policy against its first one.
    """

    method: str
    runs: tuple[str, ...]
    iteration: int
    benchmark: str
    checkpoint: str
    numbers: Mapping[str, Measure]
    scores: Mapping[str, Mapping[str, float]]
    clusters: Mapping[str, str]
    judges: Mapping[str, frozenset[str]]
    tokens: float
    hours: float
    verdict: PolicyVerdict | None = None

    def pair_with(self, rival: "Result", metric: str) -> PairedResults | None:
        """Return the scores of a rival and of this result on the prompts of both.

        None without such prompts, or if another judge gave the scores.
        """
        if self.judges.get(metric) != rival.judges.get(metric):
            return None
        before, after = rival.scores.get(metric, {}), self.scores.get(metric, {})
        prompts = sorted(before.keys() & after.keys())
        clusters = {**rival.clusters, **self.clusters}
        if not prompts:
            return None
        return PairedResults(
            before=[before[prompt] for prompt in prompts],
            after=[after[prompt] for prompt in prompts],
            clusters=[clusters.get(prompt, prompt) for prompt in prompts],
        )

    def verdict_over(self, rival: "Result") -> PolicyVerdict | None:
        """Return the run's own verdict on this policy against a rival, if it has one."""
        own = self.verdict
        return own if own is not None and own.other_id == rival.checkpoint else None

    def lead(self, rival: "Result", metric: str) -> MeasuredChange | None:
        """Return this result's lead in a metric, paired by prompt; None without shared prompts."""
        found = self.pair_with(rival, metric)
        if found is None:
            return None
        before, after = found.before, found.after
        return measured_change(metric, before, after, found.clusters, self.verdict_over(rival))


def incomparable(found: Sequence[Result], metric: str) -> str | None:
    """Return why the results' figures of a metric cannot be compared; None if they can."""
    having = [result for result in found if metric in result.numbers]
    if len({result.judges.get(metric) for result in having}) > 1:
        return f"by different judges ({judge_kind(metric)})"
    if any(len(result.judges.get(metric, ())) > 1 for result in having):
        return f"a mean over different judges ({judge_kind(metric)})"
    prompts = {frozenset[str]().union(*result.scores.values()) for result in having}
    return "on different prompts" if len(prompts) > 1 else None


def undecided_prompts(found: Sequence[Result]) -> int:
    """Return how many prompts are left out of leads: in a result, their math was not decided."""
    prompts = [
        p for r in found for p, value in r.scores.get(MATH_UNDECIDED, {}).items() if value > 0
    ]
    return len(set(prompts))


def results(
    lake: Path,
    names: Sequence[str],
    *,
    task: str | None = None,
    eval_set: str | None = None,
) -> list[Result]:
    """Return the result of each run, after the results of the policies that they began with.

    A policy that one run made and others began with is shown once, with the others' measurements of
    it: its reward and its KL to M_0 are to be compared with theirs. Each metric is taken from the
    first run that has it, as a run that trains a reward model lacks rewards. With `task`, only
    prompts of that task count; with `eval_set`, only prompts of that held-out set.

    Raises:
        NoSuchRunError: if a run does not exist, or is unmeasured.
    """
    began: dict[str, list[Result]] = {}
    reached = list[Result]()
    for name in dict.fromkeys(names):
        own, _, which = name.partition(":")
        run = open_run(lake, own)
        try:
            found = _results(run, own, Counted(task=task, eval_set=eval_set), which)
        finally:
            run.close()
        for result in found:
            if result.method == INITIAL:
                began.setdefault(result.checkpoint, []).append(result)
            else:
                reached.append(result)
    made = {r.checkpoint for r in reached if r.benchmark == HELD_OUT and r.iteration > 0}
    return [
        *(_by_first_metric(of[0], of) for identity, of in began.items() if identity not in made),
        *(_by_first_metric(result, _as_beginning(result, began)) for result in reached),
    ]


def result_of(run: RunReader, method: str, iteration: int, benchmark: str) -> Result | None:
    """Return the result of an iteration's policy on a benchmark; None if it was not measured.

    M_0's is always the result of iteration 0; `method` is the result's name.
    """
    counted = Counted()
    own = (pl.col("iteration") == iteration) & (pl.col("benchmark") == benchmark)
    numbers = _numbers(run, counted).filter(own)
    if numbers.is_empty():
        return None
    return _result(run, run.folder.name, method, numbers, counted)


def _as_beginning(made: Result, began: Mapping[str, Sequence[Result]]) -> Sequence[Result]:
    """Return the results of a policy: from the runs that began with it, then from its own."""
    return [*(began.get(made.checkpoint, ()) if made.benchmark == HELD_OUT else ()), made]


def _by_first_metric(result: Result, by: Sequence[Result]) -> Result:
    """Return a result with each metric of its policy from the first of `by` that has it."""
    return replace(
        result,
        numbers={metric: of for one in reversed(by) for metric, of in one.numbers.items()},
        scores={metric: of for one in reversed(by) for metric, of in one.scores.items()},
        judges={metric: of for one in reversed(by) for metric, of in one.judges.items()},
    )


def by_method(found: Iterable[Result]) -> list[Result]:
    """Average the runs of each method.

    Numbers are means over runs. The variance of such a mean is the variance of a run's mean over
    prompts (runs may share prompts) plus the variance between runs divided by their number: an
    upper bound.
    """
    groups: dict[str, list[Result]] = {}
    for result in found:
        groups.setdefault(result.method, []).append(result)
    return [_together(method, members) for method, members in groups.items()]


def _together(method: str, members: Sequence[Result]) -> Result:
    first = members[0]
    metrics = [m for m in first.numbers if all(m in member.numbers for member in members)]
    return Result(
        method=method,
        runs=tuple(run for member in members for run in member.runs),
        iteration=first.iteration,
        benchmark=first.benchmark,
        checkpoint=first.checkpoint,
        numbers={m: _mean([member.numbers[m] for member in members]) for m in metrics},
        scores={m: _mean_scores([member.scores.get(m, {}) for member in members]) for m in metrics},
        clusters={x: cluster for member in members for x, cluster in member.clusters.items()},
        judges={m: frozenset[str]().union(*(one.judges[m] for one in members)) for m in metrics},
        tokens=fmean(member.tokens for member in members),
        hours=fmean(member.hours for member in members),
        verdict=first.verdict if len(members) == 1 else None,
    )


def _mean(measures: Sequence[Measure]) -> Measure:
    values = [measure.value for measure in measures]
    n = min(measure.n for measure in measures)
    errors = [measure.stderr for measure in measures if measure.stderr is not None]
    if len(errors) < len(measures):
        return Measure(value=fmean(values), stderr=None, n=n)
    within = fmean(error**2 for error in errors)
    between = stdev(values) ** 2 / len(values) if len(values) > 1 else 0.0
    return Measure(value=fmean(values), stderr=math.sqrt(within + between), n=n)


def _mean_scores(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each prompt's mean over the runs that scored it: seeds choose different prompts."""
    prompts = set[str]().union(*scores)
    return {x: fmean(of[x] for of in scores if x in of) for x in sorted(prompts)}


def _results(run: RunReader, name: str, counted: Counted, which: str) -> list[Result]:
    """Return the results of a run's M_0 and of its last policy, if measured; or of `which`."""
    config = cast("dict[str, Any]", json.loads(run.journal.meta("config") or "{}"))
    recipe: dict[str, Any] = config.get("recipe", {})
    method = str(recipe.get("name", UNNAMED))
    numbers = _numbers(run, counted)
    # The result of a recipe without training is the best of its samples.
    best = f"{BEST_OF}-{recipe.get('most')}"
    benchmark = best if best in numbers["benchmark"] else HELD_OUT
    if method == BEST_OF_N:
        method = best
    if which:
        method, benchmark, numbers = _method_of(run, which, method, numbers)
    of_policies = pl.col("benchmark") == HELD_OUT
    began = numbers.filter(of_policies & (pl.col("iteration") == 0))
    reached = numbers.filter((pl.col("benchmark") == benchmark) & (pl.col("iteration") > 0))
    last = reached.filter(pl.col("iteration") == pl.col("iteration").max())
    kept = best_kept(run) if benchmark == HELD_OUT else None
    if kept is not None:
        last = numbers.filter(of_policies & (pl.col("iteration") == kept))
    found = [(INITIAL, began), (method, last)]
    whole = [_result(run, name, of, rows, counted) for of, rows in found if not rows.is_empty()]
    whole = [_called_as_made(run, result) for result in whole]
    whole = [_with_first_id(result, whole[0]) for result in whole]
    if not whole:
        raise NoSuchRunError(f"run {name} has measured no answers{counted} yet")
    return whole


def _method_of(
    run: RunReader, which: str, method: str, numbers: pl.DataFrame
) -> tuple[str, str, pl.DataFrame]:
    """Return the method, the benchmark and the numbers of the name after a run's.

    Raises:
        NoSuchRunError: if the run did not measure it on held-out prompts.
    """
    measured = numbers["benchmark"].unique().to_list()
    if which in measured and which.startswith(f"{BEST_OF}-"):
        return which, which, numbers
    policy = model_of(run, which)
    if policy.at_step is None:
        raise NoSuchRunError(
            f"{run.folder.name}:{which}: `compare` represents a run by its best model: give "
            f"{run.folder.name}, or a checkpoint within a training, such as M_1@20"
        )
    benchmark = step_benchmark(HELD_OUT, policy.at_step)
    if benchmark not in measured:
        raise NoSuchRunError(
            f"{run.folder.name}:{which} was measured on no held-out prompts: begin the run with "
            "held_out_each=true for them; `lpfloop report` draws its dev prompts"
        )
    own = pl.col("iteration").is_in([0, policy.iteration])
    return f"{method}@{policy.at_step}", benchmark, numbers.filter(own)


def _called_as_made(run: RunReader, result: Result) -> Result:
    """Return M_0's result under the name that its weights have in the run that made them.

    A run that began with them as a folder knows only the hash of their files.
    """
    if result.method != INITIAL:
        return result
    rows = run.scan("checkpoints", iteration=0).select("path").collect()
    places = [Path(str(path)) for path in rows["path"]]
    made = [place.name for place in places if place.parent.name == CHECKPOINTS]
    return replace(result, checkpoint=made[0]) if made else result


def _with_first_id(result: Result, first: Result) -> Result:
    """Return a result whose verdict names the first policy as the comparison does."""
    if result.verdict is None or first.method != INITIAL:
        return result
    return replace(result, verdict=replace(result.verdict, other_id=first.checkpoint))


def _verdict(run: RunReader, iteration: int, counted: Counted) -> PolicyVerdict | None:
    """Return the verdict on a policy against the first one, by the held-out prompts that count."""
    if counted.task is not None and counted.eval_set is not None:
        return None
    scope = "all" if counted == Counted() else "eval_set" if counted.task is None else "task"
    columns = {
        "iteration": iteration,
        "split": HELD_OUT,
        "against": "initial",
        "scope": scope,
        "name": counted.task or counted.eval_set or "",
    }
    rows = run.scan("verdicts").filter(*(pl.col(name) == value for name, value in columns.items()))
    return next(iter(frame_rows(PolicyVerdict, rows.collect())), None)


def _numbers(run: RunReader, counted: Counted) -> pl.DataFrame:
    """Return a run's figures; for one task only the figures computed from its prompts' scores."""
    keys = ("iteration", "checkpoint_id", "benchmark", "metric")
    numbers = clustered_means(run, _scores(run, counted), keys)
    if counted.task is None:
        # Figures that were fitted to all prompts at once lack scores by prompt.
        of_all = pl.col("benchmark") == eval_set_benchmark(counted.eval_set)
        other = ~measured_on(HELD_OUT)
        rows = run.scan("evaluations").filter(of_all | other)
        own = rows.with_columns(_benchmark()).select(*keys, "value", "stderr", "n")
        numbers = pl.concat([numbers, own.join(numbers, on=keys, how="anti")])
    return numbers.sort(keys).collect()


def _figures(run: RunReader) -> pl.LazyFrame:
    """Return the prompt-level values of the figures that scores are combined to."""
    scores = measured_scores(run)
    measured = measured_metrics(scores)
    figures = [f for f in (VERIFIED, APPROVAL) if f not in measured]
    values = [value_rows(scores, figure, measured) for figure in figures]
    named = [of.with_columns(metric=pl.col("figure")).select(SCORE) for of in values]
    return pl.concat([scores.head(0).select(SCORE), *named])


def measured_scores(run: RunReader) -> pl.LazyFrame:
    """Return the scores of policies, without the drafts' scores, which measure the critic."""
    return run.scan("scores").filter(pl.col("benchmark") != DRAFTS).with_columns(_benchmark())


def _benchmark() -> pl.Expr:
    """Return a row's benchmark: all sets of held-out prompts are one."""
    held_out = pl.when(measured_on(HELD_OUT)).then(pl.lit(HELD_OUT))
    of_step = pl.col("benchmark").str.replace(SETS_OF_STEP, rf"${{1}}{HELD_OUT}")
    return held_out.otherwise(of_step).alias("benchmark")


def _scores(run: RunReader, counted: Counted) -> pl.LazyFrame:
    scores = pl.concat([measured_scores(run).select(SCORE), _figures(run)])
    of = {"task": counted.task, "eval_set": counted.eval_set}
    conditions = [pl.col(name) == value for name, value in of.items() if value is not None]
    if not conditions:
        return scores
    prompts = run.scan("prompts").filter(*conditions).select("prompt_id")
    return scores.join(prompts, on="prompt_id", how="semi")


def _result(
    run: RunReader, name: str, method: str, numbers: pl.DataFrame, counted: Counted
) -> Result:
    rows = numbers.to_dicts()
    first = rows[0]
    behind = (
        _scores(run, counted)
        .filter(*(pl.col(c) == first[c] for c in ("iteration", "checkpoint_id", "benchmark")))
        .select("metric", "prompt_id", "value")
        .sort("metric", "prompt_id")
        .collect()
    )
    scores: dict[str, dict[str, float]] = {}
    for metric, prompt_id, value in behind.iter_rows():
        scores.setdefault(metric, {})[prompt_id] = value
    began = method == INITIAL
    judges = judges_of(run)
    prompts = set[str]().union(*scores.values())
    at = first["iteration"]
    return Result(
        method=method,
        runs=(name,),
        verdict=_verdict(run, at, counted) if first["benchmark"] == HELD_OUT else None,
        iteration=first["iteration"],
        benchmark=first["benchmark"],
        checkpoint=first["checkpoint_id"],
        numbers={
            r["metric"]: Measure(value=r["value"], stderr=r["stderr"], n=r["n"]) for r in rows
        },
        scores=scores,
        clusters={prompt: c for prompt, c in clusters_in(run).items() if prompt in prompts},
        judges={
            row["metric"]: frozenset([judges[kind]] if kind is not None else [])
            for row in rows
            for kind in [judge_kind(row["metric"])]
        },
        tokens=0 if began else run.journal.total_cost().tokens,
        hours=0.0 if began else run.journal.seconds() / 3600,
    )
