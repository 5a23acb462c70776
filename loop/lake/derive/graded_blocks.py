"""The graded candidates of a whole iteration, block by block: completions of a pool, or imported.

As in `judged_blocks`, the loop's completions are in the same chunks in every stage. Imported rows
are read as a whole, and come in blocks of a fixed number of prompts: a rule may make several pairs
of each, which repeat its texts.
"""

from collections.abc import Iterator, Sequence

from ....stores.address import run_argument
from ....stores.derived import DerivedError
from ....stores.journal_reader import Part
from ....stores.keys import Json
from ....stores.lake import RunReader
from ...data.binarize import graded
from ...data.judged_candidates import READ
from .judged_blocks import IMPORTED, PromptBlock, columns_of, ranges, stage_read

COMPLETED, GRADED = "complete:", "grade:"
TABLES = frozenset({"candidates", "grades"})
PROMPTS_A_BLOCK = 5_000


def graded_iterations(run: RunReader) -> list[int]:
    """Return the iterations whose grading is complete."""
    numbers = sorted({part.iteration for part in run.journal.parts() if part.table == "grades"})
    return [number for number in numbers if not _owed(run, number)]


def require_grades(run: RunReader, number: int, rule: str) -> None:
    """Refuse an iteration without the grades that a rule reads, or with pending ones.

    Raises:
        DerivedError: naming the missing grades.
    """
    name = run.folder.name
    if _owed(run, number):
        raise DerivedError(
            f"iteration {number} of run {name} is not finished; `lpfloop resume "
            f"{run_argument(run.folder)}` continues "
            "it"
        )
    if not any(part.table == "grades" and part.rows for part in _parts(run, number)):
        raise DerivedError(
            f"--rule {rule}: reads grades, which iteration {number} of run {name} lacks"
        )


def graded_blocks(run: RunReader, iteration: int) -> Iterator[PromptBlock]:
    """Yield the blocks of an iteration; candidates come as from `binarize.graded`."""
    prompts = run.scan("prompts").select(READ["prompts"]).collect(engine="in-memory")
    prompts = prompts.unique("prompt_id", keep="first", maintain_order=True)
    for block in _cut(_parts(run, iteration)):
        candidates = columns_of(run, "candidates", block)
        order = candidates.select("prompt_id").unique(maintain_order=True)
        judged = graded(candidates, columns_of(run, "grades", block))
        for part in order.iter_slices(PROMPTS_A_BLOCK):
            yield PromptBlock(
                prompts=part.join(prompts, on="prompt_id", maintain_order="left"),
                judged=judged.join(part, on="prompt_id", how="semi", maintain_order="left"),
            )


def grading_stages(run: RunReader, iteration: int) -> list[dict[str, Json]]:
    """Return the stages that `graded_blocks` reads."""
    names = dict.fromkeys(part.stage for part in _parts(run, iteration))
    return [stage_read(run, iteration, name) for name in names]


def _parts(run: RunReader, iteration: int) -> list[Part]:
    parts = run.journal.parts(iteration=iteration)
    return [part for part in parts if part.table in TABLES and _graded(part.stage)]


def _cut(parts: Sequence[Part]) -> Iterator[Sequence[Part]]:
    """Cut parts into groups to read at once: an import is one, as its prompts are unordered."""
    if any(part.stage == IMPORTED for part in parts):
        yield parts
        return
    for chunks in ranges(part for part in parts if part.table == "candidates"):
        yield [part for part in parts if part.chunk in chunks]


def _graded(stage: str) -> bool:
    """Whether a stage made completions, or graded them."""
    return stage == IMPORTED or stage.startswith((COMPLETED, GRADED))


def _owed(run: RunReader, iteration: int) -> int:
    """Return how many of the units to read are pending."""
    states = [state for state in run.journal.stages() if state.iteration == iteration]
    return sum(state.planned - state.done for state in states if _graded(state.stage))
