# pyright: basic
"""Answers of a run that its critic is to critique in another way; they keep their ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from ....stores.frames import frame_rows
from ....stores.keys import digest
from ....stores.lake import RunReader
from ....stores.records import Candidate, Prompt
from .answers_file import AnswersFile, OutsideAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAnswers(AnswersFile):
    """Answers of `run`, no two of them to one prompt, by their ids."""

    run: RunReader
    ids: tuple[str, ...]

    def units(self, size: int) -> Iterator[list[OutsideAnswer]]:
        """Yield the answers, `size` at a time, in the order of their ids."""
        wanted = pl.LazyFrame({"candidate_id": self.ids})
        scanned = self.run.scan("candidates").join(wanted, on="candidate_id", how="semi")
        drawn = scanned.unique("candidate_id").sort("candidate_id").collect(engine="streaming")
        asked = self.run.scan("prompts").join(drawn.lazy(), on="prompt_id", how="semi")
        prompts = {p.prompt_id: p for p in frame_rows(Prompt, asked.collect())}
        for part in drawn.iter_slices(size):
            rows = frame_rows(Candidate, part)
            yield [OutsideAnswer(prompts[row.prompt_id], row) for row in rows]


def run_answers(run: RunReader, ids: Sequence[str], called: str) -> RunAnswers:
    """Return answers of a run; `called` is their purpose, after the run's name."""
    ordered = tuple(sorted(ids))
    return RunAnswers(
        sha256=digest([run.folder.name, *ordered]),
        source=f"{run.folder.name} {called}",
        task=None,
        rows=len(ordered),
        run=run,
        ids=ordered,
    )
