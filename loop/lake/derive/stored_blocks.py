"""The stored rows that rules read, block by block of prompts, so that memory is bounded.

Sampled candidates and a pool's completions are in the same chunks of prompts in every stage, so a
block is a range of chunks. Imported rows lack such an order and are read as a whole.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from ....stores.address import run_argument
from ....stores.derived import DerivedError
from ....stores.journal_reader import Part
from ....stores.keys import Json, digest
from ....stores.lake import RunReader
from ...data.binarize import add_scores
from ...data.judged_candidates import READ, Deciding, judge, verdicts
from ...data.stage_names import critique_label, of_any_round

CANDIDATES_A_BLOCK = 30_000
PROMPTS_A_BLOCK = 5_000
"""Of imported grades: a rule may make several pairs of a prompt, which repeat its texts."""
CHUNKED = frozenset({"sample", "refine"})
"""The stages whose rows are in the chunks of their prompts."""
IMPORTED = "import"
ANNOTATED = "annotate:"
"""The stages of people's critiques, which are on candidates of any chunk."""
MADE = frozenset({"pair", "demonstrate", "unpair"})
"""The stages after judging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """Some prompts, all their candidates, and the candidates' judgments."""

    prompts: pl.DataFrame
    judged: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The rows that a rule reads: `tables` of the stages that made candidates or judged them.

    Without rows of the table `needed` an iteration cannot be used; None if its candidates suffice.
    """

    noun: str
    tables: frozenset[str]
    makes: Callable[[str], bool]
    needed: str | None = None

    def parts(self, run: RunReader, iteration: int) -> list[Part]:
        """Return the parts of an iteration that hold the rows."""
        return [
            part
            for part in run.journal.parts(iteration=iteration)
            if part.table in self.tables and (self.makes(part.stage) or is_annotation(part))
        ]

    def stages(self, run: RunReader, iteration: int) -> list[dict[str, Json]]:
        """Return the stages that are read, for a lineage."""
        names = dict.fromkeys(part.stage for part in self.parts(run, iteration))
        return [stage_read(run, iteration, name) for name in names]

    def iterations(self, run: RunReader, iteration: int | None) -> list[int]:
        """Return the wanted iteration, by default all that are judged completely.

        Raises:
            DerivedError: if the wanted one is not, or none is.
        """
        if iteration is not None:
            hindrance = self._hindrance(run, iteration)
            if hindrance is not None:
                raise DerivedError(f"iteration {iteration} of run {run.folder.name} {hindrance}")
            return [iteration]
        begun = sorted({state.iteration for state in run.journal.stages()})
        found = [number for number in begun if self._hindrance(run, number) is None]
        if not found:
            raise DerivedError(
                f"run {run.folder.name} contains no iteration whose candidates are all {self.noun}"
            )
        return found

    def _hindrance(self, run: RunReader, iteration: int) -> str | None:
        """Return why an iteration cannot be used, if it cannot."""
        states = [state for state in run.journal.stages() if state.iteration == iteration]
        own = [state for state in states if self.makes(state.stage)]
        if sum(state.planned - state.done for state in own) or (
            self.needed is None and _is_unpaired({state.stage for state in states})
        ):
            return f"is not finished; `lpfloop resume {run_argument(run.folder)}` continues it"
        if self.needed is None:
            there = bool(own)
        else:
            there = any(p.table == self.needed and p.rows for p in self.parts(run, iteration))
        if there:
            return None
        begun = ", ".join(str(n) for n in sorted({s.iteration for s in run.journal.stages()}))
        return f"has no {self.noun} candidates; the run has iterations {begun}"


def _is_unpaired(stages: set[str]) -> bool:
    return bool(stages & CHUNKED) and not stages & MADE


def _judges(stage: str) -> bool:
    """Whether a stage drew candidates to train on, or judged them."""
    return _about(stage) <= {*CHUNKED, IMPORTED}


def _about(stage: str) -> set[str]:
    """Return the stages whose candidates a stage is about, or that it is itself."""
    return {*of_any_round(critique_label(stage)).rpartition(":")[2].split("+")}


JUDGED = Evidence(noun="judged", tables=frozenset(READ), makes=_judges)
GRADED = Evidence(
    noun="graded",
    tables=frozenset({"candidates", "grades"}),
    makes=lambda stage: stage == IMPORTED or stage.startswith(("complete:", "grade:")),
    needed="grades",
)


def is_annotation(part: Part) -> bool:
    """Whether a part holds people's critiques."""
    return part.stage.startswith(ANNOTATED) and part.table == "critiques"


def stage_read(run: RunReader, iteration: int, stage: str) -> dict[str, Json]:
    """Return a stage for a lineage: its name, and the hash of its units' keys."""
    identity = digest(run.journal.keys(iteration, stage))
    return {"iteration": iteration, "stage": stage, "identity": identity}


def judged_blocks(
    run: RunReader, iteration: int, verdict_rows: pl.DataFrame | None, deciding: Deciding | None
) -> Iterator[PromptBlock]:
    """Yield the blocks of an iteration; `verdict_rows` replace the verdicts of stored critiques."""
    prompts = _prompts(run)
    for parts in _cut(JUDGED.parts(run, iteration), is_whole=_is_unordered):
        candidates = _columns(run, "candidates", parts)
        found = (
            verdicts(_columns(run, "critiques", parts), deciding)
            if verdict_rows is None
            else verdict_rows
        )
        order = candidates.select("prompt_id").unique(maintain_order=True)
        yield PromptBlock(
            prompts=order.join(prompts, on="prompt_id", maintain_order="left"),
            judged=judge(candidates, _columns(run, "rewards", parts), found),
        )


def graded_blocks(run: RunReader, iteration: int) -> Iterator[PromptBlock]:
    """Yield the blocks of an iteration; candidates come as from `binarize.graded`."""
    prompts = _prompts(run)
    parts = GRADED.parts(run, iteration)
    for block in _cut(parts, is_whole=lambda part: part.stage == IMPORTED):
        candidates = _columns(run, "candidates", block)
        order = candidates.select("prompt_id").unique(maintain_order=True)
        judged = add_scores(candidates, _columns(run, "grades", block))
        for part in order.iter_slices(PROMPTS_A_BLOCK):
            yield PromptBlock(
                prompts=part.join(prompts, on="prompt_id", maintain_order="left"),
                judged=judged.join(part, on="prompt_id", how="semi", maintain_order="left"),
            )


def _prompts(run: RunReader) -> pl.DataFrame:
    prompts = run.scan("prompts").select(READ["prompts"]).collect(engine="in-memory")
    return prompts.unique("prompt_id", keep="first", maintain_order=True)


def _is_unordered(part: Part) -> bool:
    return not is_annotation(part) and not _about(part.stage) <= CHUNKED


def _cut(parts: Sequence[Part], *, is_whole: Callable[[Part], bool]) -> Iterator[list[Part]]:
    """Cut parts into blocks: ranges of chunks, each with the annotations of all."""
    if any(map(is_whole, parts)):
        yield list(parts)
        return
    annotations = [part for part in parts if is_annotation(part)]
    judging = [part for part in parts if not is_annotation(part)]
    for chunks in _ranges(part for part in judging if part.table == "candidates"):
        yield [*(part for part in judging if part.chunk in chunks), *annotations]


def _ranges(candidates: Iterable[Part]) -> Iterator[set[int]]:
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


def _columns(run: RunReader, table: str, parts: Sequence[Part]) -> pl.DataFrame:
    """Return the rows of a block's table, with the columns that pairing reads."""
    of = [part for part in parts if part.table == table]
    return run.scan_parts(table, of).select(READ[table]).collect(engine="in-memory")
