"""Other people's preferences mixed with the run's: rows that become pairs, and skipped rows."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rows import PROMPT

from lpfloop.loop.data.files import InputError
from lpfloop.loop.stages.mix import Tables, Taking, comparisons, require_mix
from lpfloop.stores.records import (
    Candidate,
    FilterCount,
    Message,
    Pair,
    Preference,
    Prompt,
    Split,
)

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    numbers = count()

    def written(*rows: Mapping[str, Any]) -> Path:
        path = tmp_path / f"mix-{next(numbers)}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return written


def pair(prompt: str, chosen: str, rejected: str, **more: object) -> dict[str, object]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}


def taken(path: Path, measuring: Mapping[str, Split] | None = None) -> Tables:
    prompts = {
        text: replace(PROMPT, messages=(Message(role="user", content=text),), split=split)
        for text, split in (measuring or {}).items()
    }
    taking = Taking(iteration=2, prompts=prompts)
    return taking.take(list(comparisons(path, 2)))


def fates(tables: Tables) -> dict[str, int]:
    return {r.outcome: r.count for r in tables[FilterCount] if isinstance(r, FilterCount)}


def sides(tables: Tables) -> list[tuple[str, str]]:
    return [
        (p.chosen[0].content, p.rejected[0].content) for p in tables[Pair] if isinstance(p, Pair)
    ]


def test_each_row_has_one_fate(write: Write):
    path = write(
        pair("a?", "yes", "no"),
        pair("a?", "yes", "no"),
        pair("b?", "same  text", " same text"),
        pair("b?", "same text", "same text"),
        pair("c?", "yes", "  "),
        pair("d?", "yes", "no"),
        pair("e?", "yes", "no", score_chosen=7, score_rejected=7),
        pair("f?", "yes", "no", score_chosen=7.5, score_rejected=7),
        pair("g?", "yes", "no"),
    )
    tables = taken(path, measuring={"d?": "held-out", "g?": "dev"})
    assert fates(tables) == {
        "dev": 1,
        "empty": 1,
        "held_out": 1,
        "identical": 2,
        "kept": 2,
        "repeated": 1,
        "undecided": 1,
    }
    assert sides(tables) == [("yes", "no")] * 2
    rows = [*tables[Pair], *tables[Candidate], *tables[Preference]]
    assert {row.iteration for row in rows if not isinstance(row, Prompt)} == {2}
    names = {c.candidate_id for c in tables[Candidate] if isinstance(c, Candidate)}
    assert {p.chosen_id for p in tables[Pair] if isinstance(p, Pair)} <= names


def test_unusable_files_are_refused(write, subtests):
    for rows, said in (
        ([{"prompt": "a?"}], "holds rows of prompts, which do not compare two answers"),
        ([{"candidate_id": "c", "annotator": "a"}], "holds annotations of a run"),
        ([{"prompt": "a?", "chosen": "x", "rejected": 3}], "line 1: 'rejected' must be a text"),
        ([], "holds no rows"),
    ):
        with subtests.test(rows=rows), pytest.raises(InputError, match=said):
            require_mix([write(*rows)], ())


def test_system_and_identical_in_a_mix(write: Write):
    path = write(pair("a?", "yes", "no", system="Be brief."), pair("b?", "yes", "yes"))
    made = taken(path)
    assert fates(made) == {"kept": 1, "identical": 1}
    (prompt,) = made[Prompt]
    assert isinstance(prompt, Prompt)
    assert [turn.role for turn in prompt.messages] == ["system", "user"]
    with pytest.raises(InputError, match="no decided comparison"):
        require_mix([write(pair("b?", "yes", "yes"))], ())
