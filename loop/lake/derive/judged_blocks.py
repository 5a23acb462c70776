"""The judged candidates of a whole iteration, by blocks of prompts.

Sampled candidates are in the same chunks of prompts in every stage, so a block is a range of chunks
and memory is bounded. Imported ones lack such an order and come as one block.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from ....stores.address import run_argument
from ....stores.derived import DerivedError
from ....stores.journal_reader import Part
from ....stores.keys import Json, digest
from ....stores.lake import RunReader
from ...data.judged_candidates import READ, Deciding, judge, verdicts
from ...data.stage_names import named, of_any_round

CANDIDATES_A_BLOCK = 30_000
CHUNKED = frozenset({"sample", "refine"})
"""The stages whose rows are in the chunks of their prompts."""
IMPORTED = "import"
ANNOTATED = "annotate:"
MADE = frozenset({"pair", "demonstrate", "unpair"})
"""The stages after judging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """Some prompts, all their candidates, and the candidates' critiques and rewards."""

    prompts: pl.DataFrame
    judged: pl.DataFrame


def judged_iterations(run: RunReader) -> list[int]:
    """Return the iterations whose candidates are all judged."""
    numbers = sorted({state.iteration for state in run.journal.stages() if _judges(state.stage)})
    return [number for number in numbers if _hindrance(run, number) is None]


def require_judged(run: RunReader, iteration: int) -> None:
    """Refuse an iteration with candidates that are not judged.

    Raises:
        DerivedError: naming the missing judgments.
    """
    hindrance = _hindrance(run, iteration)
    if hindrance is not None:
        raise DerivedError(f"iteration {iteration} of run {run.folder.name} {hindrance}")


def _hindrance(run: RunReader, iteration: int) -> str | None:
    states = [state for state in run.journal.stages() if state.iteration == iteration]
    judging = [state for state in states if _judges(state.stage)]
    if not judging:
        whole = ", ".join(str(n) for n in sorted({s.iteration for s in run.journal.stages()}))
        return f"has no judged candidates; the run has iterations {whole}"
    pending = sum(state.planned - state.done for state in judging)
    names = {state.stage for state in states}
    if pending or (names & CHUNKED and not names & MADE):
        return f"is not finished; `lpfloop resume {run_argument(run.folder)}` continues it"
    return None


def blocks(
    run: RunReader,
    iteration: int,
    said: pl.DataFrame | None = None,
    deciding: Deciding | None = None,
) -> Iterator[PromptBlock]:
    """Yield the blocks of an iteration; the verdicts `said` replace the stored critiques'."""
    prompts = run.scan("prompts").select(READ["prompts"]).collect(engine="in-memory")
    prompts = prompts.unique("prompt_id", keep="first", maintain_order=True)
    for parts in _cut(_parts(run, iteration)):
        candidates = columns_of(run, "candidates", parts)
        found = verdicts(columns_of(run, "critiques", parts), deciding) if said is None else said
        order = candidates.select("prompt_id").unique(maintain_order=True)
        yield PromptBlock(
            prompts=order.join(prompts, on="prompt_id", maintain_order="left"),
            judged=judge(candidates, columns_of(run, "rewards", parts), found),
        )


def judging_stages(run: RunReader, iteration: int) -> list[dict[str, Json]]:
    """Return the stages that `blocks` reads."""
    names = dict.fromkeys(part.stage for part in _parts(run, iteration))
    return [stage_read(run, iteration, name) for name in names]


def stage_read(run: RunReader, iteration: int, stage: str) -> dict[str, Json]:
    """Return a stage for a lineage: its name, and the hash of its units' keys."""
    identity = digest(run.journal.keys(iteration, stage))
    return {"iteration": iteration, "stage": stage, "identity": identity}


def has_annotations(run: RunReader, iteration: int) -> bool:
    """Whether people, or others, have rated candidates of an iteration afterwards."""
    return any(_annotates(part) and part.rows for part in _parts(run, iteration))


def critiques_of(run: RunReader, iteration: int) -> int:
    """Return how many critiques `blocks` reads."""
    return sum(part.rows for part in _parts(run, iteration) if part.table == "critiques")


def _parts(run: RunReader, iteration: int) -> list[Part]:
    """Return the parts with an iteration's candidates and their judgments."""
    return [
        part
        for part in run.journal.parts(iteration=iteration)
        if (_judges(part.stage) or _annotates(part)) and part.table in READ
    ]


def _judges(stage: str) -> bool:
    """Whether a stage drew candidates to train on, or judged them."""
    return _about(stage) <= {*CHUNKED, IMPORTED}


def _annotates(part: Part) -> bool:
    """Whether a part holds people's annotations, which are on candidates of any chunk."""
    return part.stage.startswith(ANNOTATED) and part.table == "critiques"


def _cut(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Cut parts into blocks: ranges of chunks, each with the annotations of all."""
    annotations = [part for part in parts if _annotates(part)]
    judging = [part for part in parts if not _annotates(part)]
    if any(not _in_chunks(part.stage) for part in judging):
        yield list(parts)
        return
    for chunks in ranges(part for part in judging if part.table == "candidates"):
        yield [*(part for part in judging if part.chunk in chunks), *annotations]


def _in_chunks(stage: str) -> bool:
    return _about(stage) <= CHUNKED


def _about(stage: str) -> set[str]:
    """Return the stages whose candidates a stage is about, or that it is itself."""
    return {*of_any_round(named(stage)).rpartition(":")[2].split("+")}


def ranges(candidates: Iterable[Part]) -> Iterator[set[int]]:
    """Yield ranges of chunks with about equal numbers of candidates; a stage file is never split.

    A chunk's rows of all stages are in one range.
    """
    chunks, size, file = set[int](), 0, None
    for chunk, of in groupby(sorted(candidates, key=_by_chunk), key=_by_chunk):
        found = list(of)
        if size >= CANDIDATES_A_BLOCK and (found[0].file is None or found[0].file != file):
            yield chunks
            chunks, size = set[int](), 0
        chunks.add(chunk)
        size, file = size + sum(part.rows for part in found), found[0].file
    if chunks:
        yield chunks


def _by_chunk(part: Part) -> int:
    return part.chunk


def columns_of(run: RunReader, table: str, parts: Sequence[Part]) -> pl.DataFrame:
    """Return the rows of a block's table, with the columns that pairing reads."""
    of = [part for part in parts if part.table == table]
    return run.scan_parts(table, of).select(READ[table]).collect(engine="in-memory")
