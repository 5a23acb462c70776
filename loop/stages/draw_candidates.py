"""Drawing candidates: samples, greedy answers and refinements, as requests and as rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...configs.schema import SamplingConfig
from ...policies.engines.engine import Batch, Completion, Request, Sampling
from ...stores.journal_reader import Cost, Unit
from ...stores.keys import Json, canonical_json
from ...stores.records import Candidate, CandidateKind, storable
from ..run.admission import Admission
from ..run.budget import upper_bound
from ..run.conditioning import conditioned
from ..run.draws import Draw
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.reporter import Advance
from ..run.run import Run, Stage, Work
from ..run.secrecy import redacted


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDrawing:
    """A stage that draws candidates from one policy under one sampling setting.

    `model` is what its rows call the model; default: the configured policy.
    """

    run: Run
    iteration: int
    policy: Served
    kind: CandidateKind
    sampling: SamplingConfig
    model: str | None = None

    def pay(self, stage: Stage, work: Callable[[Unit], Sequence[Draw]]) -> None:
        """Draw what the stage owes; `work` gives a unit's draws when their turn has come."""
        if not stage.owed:
            return
        admitted: dict[str, tuple[Unit, Sequence[Draw]]] = {}
        engine = self.run.engine(self.policy)
        batches = self._batches(stage, work, admitted)
        for result in engine.generate(batches):
            unit, drawn = admitted.pop(result.key)
            rows = [
                self._row(draw, completion)
                for draw, completion in zip(drawn, result.completions, strict=True)
            ]
            stage.commit(unit, {Candidate: rows}, spent(result.completions, rows=len(rows)))
            record_failures(self.run, result.completions)

    def _batches(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Draw]],
        admitted: dict[str, tuple[Unit, Sequence[Draw]]],
    ) -> Admission[Batch]:
        """Give the engine a unit at a time: only what is in flight is held in memory."""
        sampling = engine_sampling(self.sampling)

        def prepare(unit: Unit) -> Batch | None:
            wanted = work(unit)
            if not wanted:
                stage.commit(unit, {Candidate: ()}, Advance())
                return None
            admitted[unit.key] = (unit, wanted)
            return Batch(
                key=unit.key,
                requests=tuple(
                    Request(
                        request_id=d.candidate_id,
                        messages=conditioned(d.messages, self.policy.control),
                        seed=d.seed,
                    )
                    for d in wanted
                ),
                sampling=sampling,
            )

        def cost(batch: Batch) -> Cost:
            prices, most = self.run.config.prices, self.sampling.max_tokens
            return upper_bound(prices, batch.requests, most, judge=False)

        return self.run.admission(stage, prepare, cost)

    def _row(self, draw: Draw, completion: Completion) -> Candidate:
        return Candidate(
            candidate_id=draw.candidate_id,
            prompt_id=draw.prompt_id,
            iteration=self.iteration,
            kind=self.kind,
            parent_id=draw.parent_id,
            critique_id=draw.critique_id,
            policy=self.policy.identity,
            model=self.model or self.run.config.policy.model,
            principle=draw.principle,
            text=storable(completion.text),
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            finish_reason=completion.finish_reason,
            logprob=completion.logprob,
            seed=draw.seed,
            sampling=canonical_json(self.sampling.model_dump(mode="json")),
        )


def spent(completions: Sequence[Completion], *, rows: int) -> Advance:
    """Return what completions cost, and how many of them failed."""
    return Advance(
        rows=rows,
        tokens=sum(c.completion_tokens for c in completions),
        prompt_tokens=sum(c.prompt_tokens for c in completions),
        calls=len(completions),
        failed=sum(c.finish_reason == "failed" for c in completions),
    )


def record_failures(run: Run, completions: Sequence[Completion]) -> None:
    """Keep in the journal why requests could not be answered: their rows say only that."""
    for completion in completions:
        if completion.error is not None:
            detail = {"request": completion.request_id, "reason": redacted(completion.error)}
            run.store.when_there_is_room(partial(run.store.journal.record, "failed", detail))


def engine_sampling(config: SamplingConfig, *, temperature: float | None = None) -> Sampling:
    """Return the engine's form of a sampling setting."""
    return Sampling(
        temperature=config.temperature if temperature is None else temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
    )


def drawn(
    it: Iteration,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    owed: Work,
    work: Callable[[int, Json], Sequence[Draw]],
) -> Rows[Candidate]:
    """Pay a stage that draws candidates of the policy; `work` gives the draws of a chunk."""
    drawing = CandidateDrawing(
        run=it.run, iteration=it.number, policy=it.policy, kind=kind, sampling=sampling
    )
    with it.run.stage(it.number, label, owed) as stage:
        drawing.pay(stage, lambda unit: work(unit.chunk, unit.key))
    return Rows(row_type=Candidate, stages=(stage.planned,))
