"""Runs of one stage with few rows a unit, and prompts in no order."""

import dataclasses
from pathlib import Path

from examples import CANDIDATE, CRITIQUE, PAIR
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.records import Candidate, Critique, Pair


def candidates(chunk: int, count: int) -> list[Candidate]:
    """Return rows whose prompts come in no order."""
    return [
        dataclasses.replace(
            CANDIDATE,
            candidate_id=f"cand-{chunk}-{n}",
            prompt_id=f"prompt-{(chunk * 7 + n * 5) % 19:02}",
            text=f"answer {n} of chunk {chunk}",
            seed=chunk * 100 + n,
        )
        for n in range(count)
    ]


def rows_of(chunk: int, count: int) -> dict:
    rows = candidates(chunk, count)
    return {
        Candidate: rows,
        Critique: [
            dataclasses.replace(CRITIQUE, critique_id=f"crit{c.seed}", prompt_id=c.prompt_id)
            for c in rows
        ],
        # Most units have no pairs: their parts are one and the same file.
        Pair: [PAIR] if chunk == 3 else [],
    }


def make(folder: Path, counts: list[int], iteration: int = 1) -> RunWriter:
    """Commit a stage of units with so many rows each."""
    there = (folder / "journal.sqlite").exists()
    writer = RunWriter(Journal(folder) if there else Journal.create(folder, {}))
    plan(writer, counts, iteration)
    return writer


def plan(writer: RunWriter, counts: list[int], iteration: int = 1) -> None:
    keys = [f"{iteration}-{chunk}" for chunk in range(len(counts))]
    writer.journal.plan(iteration, "sample", "x", lambda: keys)
    for chunk, count in enumerate(counts):
        writer.commit(keys[chunk], rows_of(chunk, count), {})
    writer.flush()
