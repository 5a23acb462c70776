"""From overall grades to demonstrations for UltraCM (UltraFeedback, Section 2.6).

A policy trained on them is a grader that any run can name as `grading.model`, with `guard` false.
"""

from ...configs.recipes import Pooled
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Demonstration, Grade, PairingOutcome, Receipt
from ...stores.schemas import RowsByType
from ..data.critique_lessons import GRADED_CRITIQUE, graded_lessons, lesson_yields
from ..data.receipts import receipts
from ..data.training_rows import Origin
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb

DEMONSTRATE_GRADES = Verb("demonstrate_grades")


def demonstrate_grades(
    it: Iteration, candidates: Rows[Candidate], grades: Rows[Grade]
) -> Rows[Demonstration]:
    """Commit a demonstration of each overall grade that can be read.

    Raises:
        RuntimeError: if the run was opened as one that learns from no grades.
    """
    it.require(Pooled, "demonstrate_grades")
    grader = it.run.grader
    if grader is None:
        raise RuntimeError("this run was opened without a grader: see `grader_of`")
    by = Origin(rule=GRADED_CRITIQUE, iteration=it.number)

    def make(unit: Unit) -> RowsByType:
        drafts = it.chunk(candidates, unit.chunk)
        said = it.chunk(grades, unit.chunk)
        made = graded_lessons(grader, it.run.prompts, drafts, said, it.number)
        return {
            Demonstration: made.rows,
            PairingOutcome: as_arrow(lesson_yields(rows_frame(Candidate, drafts), made.rows, by)),
            Receipt: receipts(it.number, GRADED_CRITIQUE, "candidates", made.fates),
        }

    params: Json = {"grader": grader.digest("overall")}
    work = it.work(DEMONSTRATE_GRADES, params, candidates, grades)
    return it.rows(Demonstration, DEMONSTRATE_GRADES.name, work, make)
