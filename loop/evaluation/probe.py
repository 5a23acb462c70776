"""Probing a policy: passed and lost capabilities, and an alarm if the loss is beyond chance.

Each policy answers the probes once, greedily, when it is evaluated; before and after are the rows
of two evaluations. The prompts are committed with the first of them.
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar

from ...configs.engines import WHOLE
from ...configs.load import semantic
from ...critics.verify import Verdict
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Evaluation, Score
from ...stores.schemas import RowsByType
from ..data.stage_names import step_benchmark, step_params
from ..lake.query.alarm_list import CODES, PROBE_FALL
from ..lake.query.forgetting import (
    FALL,
    FALL_OVERALL,
    PASSED,
    alarming,
    benchmark_of,
    describe_fall,
    falls,
)
from ..run.handles import Rows, chunk_prompts
from ..run.iteration import Iteration
from ..run.run import Run, Verb
from ..stages.sample import answers
from ..stages.select_prompts import keep_prompts
from .assess import UNDRAWN
from .metrics import Clusters, clustered_params, given_clusters, score_of, summarise
from .probe_sets import PROBES, Probes, load_probes

PROBE = Verb("probe")
ANSWERS, MEASURES = f"evaluate:{PROBES}", f"measure:{PROBES}"
N = TypeVar("N", Score, Evaluation)
ALARM = "alarm"
"""The kind of the event that records a probe's fall."""


def probe(it: Iteration, step: int | None = None) -> None:
    """Measure the policy's share of `assessment.probes` passed, if probes are configured.

    `step` is the training step of an intermediate policy.

    Raises:
        InputError: if they cannot be read.
    """
    config = it.run.config
    if config.assessment.probes is None:
        return
    probes = load_probes(config.assessment.probes)
    _keep(it.run, probes)
    greedy = config.evaluation.model_copy(update={**WHOLE, "temperature": 0.0})
    params: Json = {
        "policy": it.policy.params,
        "sampling": semantic(greedy),
        "for": PROBES,
        **step_params(step),
    }
    chunks = chunk_prompts(probes.prompts, config.prompts.chunk)
    label = f"evaluate:{step_benchmark(PROBES, step)}"
    _measure(it, probes, answers(it, chunks, label, "greedy", greedy, params), step)


def passes_probe(verdict: Verdict) -> bool:
    """Whether an answer meets every check of its prompt, and is right if there is a reference."""
    met = dict(verdict.metrics).get("general_fulfilled", 1.0)
    return verdict.rating == 1 and met == 1.0


def _keep(run: Run, probes: Probes) -> None:
    """Commit the probes' prompts that the run does not have, so the lake is complete."""
    rows = [prompt for prompt in probes.prompts if prompt.prompt_id not in run.prompts]
    keep_prompts(run, PROBES, [rows], params=PROBES)


def _measure(it: Iteration, probes: Probes, answered: Rows[Candidate], step: int | None) -> None:
    """Commit scores, their means and the falls since earlier policies."""
    earlier = _measured_before(it)
    keys = [it.run.store.journal.key(number, MEASURES, 0) for number in earlier.values()]
    clusters = given_clusters(probes.prompts)
    params: Json = {"probes": dict(probes.probe_of), "falls": list(earlier)}
    plain = it.whole(PROBE, clustered_params(params, clusters), answered)
    work = replace(
        plain,
        upstream=(*plain.upstream, *keys),
        reads=lambda: [[*plain.reads()[0], *keys]],
    )

    def make(_: Unit) -> RowsByType:
        scores = list(_scores(it, probes, answered))
        numbers = [*summarise(scores, clusters), *_falls(it, scores, earlier, clusters)]
        _announce(it.run, [_at_step(number, step) for number in numbers if alarming(number)])
        return {
            Score: [_at_step(score, step) for score in scores],
            Evaluation: [_at_step(number, step) for number in numbers],
        }

    it.run.make(it.number, f"measure:{step_benchmark(PROBES, step)}", work, make)


def _at_step(row: N, step: int | None) -> N:
    """Return a score or a number under the benchmark of a step's policy."""
    return replace(row, benchmark=step_benchmark(row.benchmark, step))


def _scores(it: Iteration, probes: Probes, answered: Rows[Candidate]) -> Iterator[Score]:
    """Yield one score an answer, skipping failed ones and facts without a judge."""
    prompts = {prompt.prompt_id: prompt for prompt in probes.prompts}
    for chunk in range(answered.chunks):
        drawn = [c for c in it.chunk(answered, chunk) if c.finish_reason not in UNDRAWN]
        verdicts = it.run.verifier.check([(prompts[c.prompt_id], c.text) for c in drawn])
        for candidate, verdict in zip(drawn, verdicts, strict=True):
            if verdict.rating is not None:
                prompt, identity = candidate.prompt_id, candidate.candidate_id
                own, value = benchmark_of(probes.probe_of[prompt]), float(passes_probe(verdict))
                yield score_of(it, own, PASSED, value, prompt=prompt, candidate=identity)


def _measured_before(it: Iteration) -> dict[str, int]:
    """Return the iterations of the policies to compare with, by metric."""
    stages = it.run.store.journal.stages()
    numbers = [s.iteration for s in stages if s.stage == MEASURES and s.iteration < it.number]
    if not numbers:
        return {}
    before, first = max(numbers), min(numbers)
    return {FALL: before} if before == first else {FALL: before, FALL_OVERALL: first}


def _falls(
    it: Iteration, scores: list[Score], earlier: dict[str, int], clusters: Clusters
) -> list[Evaluation]:
    if not scores:
        return []
    store = it.run.store
    return [
        number
        for metric, iteration in earlier.items()
        for before in [store.rows(Score, store.journal.key(iteration, MEASURES, 0))]
        for number in falls(metric, before, scores, clusters)
    ]


def _announce(run: Run, alarms: list[Evaluation]) -> None:
    """Report alarms before their rows are committed: after a crash twice, but never not at all."""
    for number in alarms:
        code = CODES[PROBE_FALL].code
        run.reporter.note(describe_fall(number), "alarm", code=code, **asdict(number))
        detail: Json = asdict(number)
        run.store.when_there_is_room(partial(run.store.journal.record, ALARM, detail))
