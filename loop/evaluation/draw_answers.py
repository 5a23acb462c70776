"""Drawing one answer to each prompt, for evaluations."""

from collections.abc import Sequence

from ...configs.schema import SamplingConfig
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, CandidateKind
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Work
from ..stages.sample import SAMPLE, CandidateDrawing, Draw, draws


def answers(
    it: Iteration,
    prompts: Prompts,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    params: Json,
) -> Rows[Candidate]:
    """Draw the policy's answer to each prompt; `params` is all that they depend on."""

    def work(unit: Unit) -> Sequence[Draw]:
        return [
            draw
            for prompt in prompts.chunks[unit.chunk]
            for draw in draws(it, unit.key, prompt, count=1)
        ]

    pending = Work(verb=SAMPLE, params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    drawing = CandidateDrawing(
        run=it.run, iteration=it.number, policy=it.policy, kind=kind, sampling=sampling
    )
    planned = it.run.run_stage(
        it.number,
        label,
        pending,
        lambda stage: drawing.run_units(stage, work),
        places=it.run.places.of(it.policy),
    )
    return Rows(row_type=Candidate, stages=(planned,))
