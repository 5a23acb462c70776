"""Verdicts on candidates by the verifier where it has one, and by the critic elsewhere.

Both are stored as critiques, so that a row that was made of one leads back to who judged.
"""

from ...stores.journal_reader import Unit
from ...stores.records import Candidate, Critique
from ...stores.schemas import RowsByType
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.needs import Asks
from ..run.run import Verb
from .critique import FIRST, Judging, critiqued

VERIFY = Verb("verify")


def verify(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit the verifier's verdict on each whole candidate whose prompt it can verify."""
    judging = Judging(
        run=it.run,
        iteration=it.number,
        candidates=lambda chunk: [c for c in it.chunk(candidates, chunk) if c.usable],
        by="verifier",
        verifiable=True,
    )
    owed = it.work(VERIFY, judging.params, candidates)

    def make(unit: Unit) -> RowsByType:
        return {Critique: judging.verified(unit.chunk)}

    return it.rows(Critique, f"verify:{candidates.label}", owed, make)


def critique_unverifiable(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit a critique of each candidate on which `verify` gives no verdict."""
    return Rows(row_type=Critique, stages=(critiqued(it, candidates, FIRST, verifiable=False),))


ASKS: Asks = {critique_unverifiable: ("critic",)}
