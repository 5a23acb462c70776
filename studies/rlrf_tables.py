"""Tables and notes of several RLRF studies: figures by task, and the quality of an arm's critic."""

from collections.abc import Mapping, Sequence

from measures import agreement, pairs_a_prompt, precision, verified_by_task

from lpfloop.loop.studies.claims import SeedEstimate
from lpfloop.loop.studies.study import Evidence, StudyArm, StudyTable


def models_by_task(evidence: Evidence, first: StudyArm, arms: Mapping[str, StudyArm]) -> StudyTable:
    """Return the verified share of M_0's answers and of each arm's, task by task.

    M_0 is the same for all arms; the table shows the measurement in the run of `first`.
    """
    began = evidence.by_seed(first.name, lambda run: verified_by_task(run, 0))
    tasks = list(began[0])
    rows = [["M_0", *_cells(began, tasks)]]
    rows += [
        [name, *_cells(evidence.by_seed(arm.name, verified_by_task), tasks)]
        for name, arm in arms.items()
    ]
    return StudyTable(title="Verified, by task, in %", columns=["model", *tasks], rows=rows)


def _cells(by_seed: Sequence[Mapping[str, float]], tasks: Sequence[str]) -> list[str]:
    return [SeedEstimate.of(shares[task] for shares in by_seed).cell() for task in tasks]


def critic_notes(evidence: Evidence, *arms: StudyArm) -> list[str]:
    """Describe each arm's number of pairs in its first iteration, and its critic."""
    return [
        f"`{arm.name}` trained on {pairs.cell()} pairs a prompt in its first iteration; its critic "
        f"agreed with the verifier on {agrees.cell()} of the drafts and refinements, and of what "
        f"it passed {right.cell()} was right."
        for arm in arms
        for pairs in [SeedEstimate.of(evidence.by_seed(arm.name, pairs_a_prompt), digits=2)]
        for agrees in [SeedEstimate.of(evidence.by_seed(arm.name, agreement), "%")]
        for right in [SeedEstimate.of(evidence.by_seed(arm.name, precision), "%")]
    ]
