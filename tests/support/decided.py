"""Runs of studies that are written at once, so that a test knows what is to be found."""

from collections.abc import Mapping, Sequence

from told import HELD_OUT, answers

from lpfloop.configs.load import resolved
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.evidence import Evidence
from lpfloop.loop.studies.measures import gain
from lpfloop.loop.studies.study import Study, StudyArm, StudyFinding
from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Prompt

FIRST = StudyArm(name="first", recipe="rlrf", settings=("iterations=1",))
OTHER = StudyArm(name="other", recipe="reward-only", settings=("iterations=1",), fork="first")
BEGAN = (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
"""How M_0 answers the held-out prompts."""


def find_gain(evidence: Evidence) -> StudyFinding:
    """Decide whether the first arm gains."""
    claim = PaperClaim(
        says="M_1 is better",
        paper=PaperFigure(place="Table 1", said="40 to 50"),
        estimate=SeedEstimate.of(evidence.by_seed("first", gain), "points", signed=True),
        above=0,
    )
    return StudyFinding(claims=[claim], commands=[f"lpfloop status {evidence.names('first')[0]}"])


STUDY = Study(
    name="made-up",
    hypothesis="It gains.",
    paper="A paper (2024)",
    built_in="All of it | by hand.",
    arms=(FIRST, OTHER),
    find=find_gain,
)


def write_job(job: Job, reached: Sequence[float] = BEGAN, end: str = "done: 1 iterations") -> None:
    """Write what a job might have made: M_0 with `BEGAN`, and M_1 with these values."""
    facts = {"config": canonical_json(resolved(job.config))}
    writer = RunWriter(Journal.create(run_folder(job.lake, job.name), facts))
    rows: Mapping = {0: {Prompt: HELD_OUT, **answers(0, BEGAN)}, 1: answers(1, reached)}
    for iteration, tables in rows.items():
        unit = f"{job.name}-{iteration}"
        writer.journal.plan(iteration, "made", unit, lambda unit=unit: [unit])
        writer.commit(unit, tables, {})
    writer.journal.record("end", end)
    writer.close()
