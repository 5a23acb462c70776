"""Runs that hold given texts, written by the store itself, for what reads texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from examples import CANDIDATE, CRITIQUE, PROMPT
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Candidate, Critique, Message, Prompt


def opened(lake: Path, name: str = "a") -> RunWriter:
    """Open a run for writing, or make it."""
    folder = run_folder(lake, name)
    if (folder / JOURNAL).exists():
        return RunWriter(Journal(folder))
    return RunWriter(Journal.create(folder, {"config": '{"policy": {"model": "tiny"}}'}))


def prompts(texts: Sequence[str], *, task: str = "math", split: str = "train") -> list[Prompt]:
    return [
        replace(
            PROMPT,
            prompt_id=f"prompt-{split}-{task}-{n}",
            task=task,
            split=split,
            messages=(Message(role="user", content=text),),
        )
        for n, text in enumerate(texts)
    ]


def candidates(prompt: str, texts: Sequence[str], *, iteration: int = 1) -> list[Candidate]:
    return [
        replace(
            CANDIDATE,
            candidate_id=f"cand-{prompt}-{iteration}-{n}",
            prompt_id=prompt,
            iteration=iteration,
            text=text,
        )
        for n, text in enumerate(texts)
    ]


def critiques(prompt: str, texts: Sequence[str], *, iteration: int = 1) -> list[Critique]:
    return [
        replace(
            CRITIQUE,
            critique_id=f"crit-{prompt}-{iteration}-{n}",
            candidate_id=f"cand-{prompt}-{iteration}-{n}",
            prompt_id=prompt,
            iteration=iteration,
            text=text,
        )
        for n, text in enumerate(texts)
    ]


def commit(
    lake: Path, units: Sequence[tuple[str, Sequence[Prompt | Candidate | Critique]]], run: str = "a"
) -> None:
    """Commit units, each a stage of its own with rows of one kind."""
    writer = opened(lake, run)
    for stage, rows in units:
        iteration = getattr(rows[0], "iteration", 0)
        key = f"{run} {iteration} {stage}"
        writer.journal.plan(iteration, stage, key, lambda key=key: [key])
        writer.commit(key, {type(rows[0]): rows}, {})
    writer.close()
