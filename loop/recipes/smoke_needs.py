"""The parts of a run's smoke test: the judges that it asks, and the methods that train."""

from ..run.models import GRADING
from ..run.run import Run
from ..stages.smoke_test import SmokeNeeds
from .refusals import judges_itself


def smoke_needs(run: Run) -> SmokeNeeds:
    """Return the parts of a run's smoke test."""
    graded = run.seen.asked.get(GRADING, ())
    return SmokeNeeds(
        critiques=run.rates or judges_itself(run.config),
        judge="follows" if judges_itself(run.config) else "frozen",
        grades="grade" in graded,
        overall="grade_overall" in graded,
        annotates=run.panels.training is not None,
        reviews=run.filters.reviewer is not None,
        rewards=run.models.reward_id is not None,
        facts=run.fact_judge is not None,
        trainings=run.seen.trainings,
    )
