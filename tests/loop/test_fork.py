"""A forked run re-uses every unit whose key still holds, and owns what it re-uses."""

import json
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_scenarios import flip, truncate
from crashing import (
    RUN,
    Whole,
    calls,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.stores import packing
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.inspection import repair
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Part, Reader
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.crash

CHILD = "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    lake: Path
    prompts: Path
    config: RunConfig
    whole: Whole


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    """A finished run that can be forked; every question that is asked is noted."""
    with quick_folder(tmp_path) as lake, stand_ins(lake):
        prompts = write_prompts(lake)
        config = small_config(prompts)
        loop(lake, config=config)
        yield Parent(lake=lake, prompts=prompts, config=config, whole=whole(lake))


def parts(lake: Path, name: str) -> dict[str, list[Part]]:
    reader = Reader(run_folder(lake, name))
    found: dict[str, list[Part]] = {}
    for part in reader.parts():
        found.setdefault(part.unit, []).append(part)
    reader.close()
    return found


def adopted(lake: Path) -> set[str]:
    """Return the units of the child that were not computed."""
    with closing(sqlite3.connect(run_folder(lake, CHILD) / "journal.sqlite")) as journal:
        said = journal.execute("SELECT key, telemetry FROM units WHERE done").fetchall()
    return {key for key, telemetry in said if "adopted" in json.loads(telemetry)}


def spent_questions(lake: Path) -> int:
    return sum(calls(lake).values())


def test_a_fork_without_changes_asks_nothing_and_has_the_same_digest(parent):
    before = spent_questions(parent.lake)
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert spent_questions(parent.lake) == before
    assert whole(parent.lake, CHILD) == parent.whole
    assert adopted(parent.lake) == set(parts(parent.lake, RUN))


@pytest.mark.parametrize(
    ("change", "kept", "made"),
    [
        ("recipe.top_k=2", {"sample", "critique:sample", "refine"}, {"pair", "train"}),
        ("training.dpo.beta=0.2", {"sample", "critique:refine", "pair"}, {"train"}),
        ("critic.attempts=3", {"sample"}, {"critique:sample", "refine", "pair", "train"}),
        ("seed=1", set(), {"sample", "critique:sample", "pair", "train"}),
    ],
)
def test_a_fork_adopts_exactly_the_units_whose_keys_hold(parent, change, kept, made):
    config = small_config(parent.prompts, change)
    with pytest.raises(ConfigError, match=r"another configuration"):
        loop(parent.lake, config=config)
    before = calls(parent.lake)
    loop(parent.lake, config=config, name=CHILD, fork=RUN)
    mine, theirs = parts(parent.lake, CHILD), parts(parent.lake, RUN)
    assert adopted(parent.lake) == set(mine) & set(theirs)
    first = {
        part.stage: unit in theirs
        for unit, found in mine.items()
        for part in found
        if part.iteration == 1
    }
    assert {stage for stage in kept | made if first[stage]} == kept
    asked = {line.split()[0] for line in calls(parent.lake) - before}
    assert bool(asked) == (set(mine) != set(theirs))
    fresh = parent.lake / "fresh"
    fresh.mkdir()
    loop(fresh, config=config)
    assert whole(parent.lake, CHILD) == whole(fresh)


def test_a_child_is_whole_without_its_parent_and_goes_on(parent):
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    shutil.rmtree(run_folder(parent.lake, RUN))
    assert whole(parent.lake, CHILD) == parent.whole
    loop(parent.lake, config=parent.config.model_copy(update={"iterations": 3}), name=CHILD)
    found = whole(parent.lake, CHILD)
    assert (found.owed, found.damaged) == ([], [])
    assert found.rows["checkpoints"] == 4


def test_a_child_carries_the_canaries_by_which_engines_prove_its_weights(parent):
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    mine, theirs = (
        {path.relative_to(run_folder(parent.lake, name)) for path in place.rglob("*")}
        for name in (CHILD, RUN)
        for place in [run_folder(parent.lake, name) / "canaries"]
    )
    assert mine == theirs
    assert len(mine) == 4


def test_what_is_damaged_in_the_parent_is_made_by_the_child(parent, caplog):
    folder = run_folder(parent.lake, RUN)
    flip(next((folder / "parts" / "critiques").iterdir()))
    truncate(next((folder / "checkpoints").glob("*/extra/weights")))
    with caplog.at_level(logging.WARNING):
        loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert "the fork makes it itself" in caplog.text
    assert whole(parent.lake, CHILD) == parent.whole


def pack(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pack all that the parent has made."""
    with monkeypatch.context() as patch, closing(Journal(run_folder(lake, RUN))) as journal:
        patch.setattr(packing, "FEWEST", 2)
        assert packing.pack_all(journal) > 30


def test_a_fork_of_a_packed_run_has_the_parts_that_were_packed(parent, monkeypatch):
    theirs, before = parts(parent.lake, RUN), spent_questions(parent.lake)
    pack(parent.lake, monkeypatch)
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert spent_questions(parent.lake) == before
    assert parts(parent.lake, CHILD) == theirs
    assert whole(parent.lake, CHILD) == parent.whole


def test_what_lies_in_a_damaged_pack_is_made_by_the_child(parent, monkeypatch, caplog):
    pack(parent.lake, monkeypatch)
    flip(next((run_folder(parent.lake, RUN) / "packs" / "critiques").iterdir()))
    with caplog.at_level(logging.WARNING):
        loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert "the fork makes it itself" in caplog.text
    assert whole(parent.lake, CHILD) == parent.whole


def test_weights_that_the_parent_gave_up_are_trained_again(parent):
    journal = Journal(run_folder(parent.lake, RUN))
    collect(journal, garbage(journal, keep=1))
    journal.close()
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    assert whole(parent.lake, CHILD) == parent.whole


def test_damage_to_a_file_that_parent_and_child_share_heals_in_both(parent):
    loop(parent.lake, config=parent.config, name=CHILD, fork=RUN)
    flip(next((run_folder(parent.lake, CHILD) / "parts" / "critiques").iterdir()))
    for name in (CHILD, RUN):
        journal = Journal(run_folder(parent.lake, name))
        assert len(repair(journal)) == 1
        journal.close()
        loop(parent.lake, config=parent.config, name=name)
        assert whole(parent.lake, name) == parent.whole


def test_a_fork_of_nothing_and_a_fork_into_a_run_that_exists_are_refused(parent):
    with pytest.raises(ConfigError, match="there is no such run"):
        loop(parent.lake, config=parent.config, name=CHILD, fork="nobody")
    assert not run_folder(parent.lake, CHILD).exists()
    with pytest.raises(ConfigError, match="exists already"):
        loop(parent.lake, config=parent.config, name=RUN, fork=RUN)
