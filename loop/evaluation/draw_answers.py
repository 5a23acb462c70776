"""Drawing one answer to each prompt: what evaluations are made of."""

from collections.abc import Sequence

from ...configs.schema import SamplingConfig
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, CandidateKind
from ..run.draws import Draw
from ..run.handles import Prompts, Rows
from ..run.run import Work
from ..run.turn import Turn
from ..stages.draw_candidates import CandidateDrawing


def answers(
    turn: Turn,
    prompts: Prompts,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    params: Json,
) -> Rows[Candidate]:
    """Draw the policy's answer to each prompt; `params` is all that the answers depend on."""

    def work(unit: Unit) -> Sequence[Draw]:
        return [
            draw
            for prompt in prompts.chunks[unit.chunk]
            for draw in turn.draws(prompt, prompt.messages, 1, unit.key)
        ]

    owed = Work(verb="sample", params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    drawing = CandidateDrawing(
        run=turn.run, iteration=turn.number, policy=turn.policy, kind=kind, sampling=sampling
    )
    with turn.run.stage(turn.number, label, owed) as stage:
        drawing.pay(stage, work)
    return Rows(row_type=Candidate, stages=(stage.planned,))
