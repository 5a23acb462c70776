"""Damage to a finished run is found, named by its unit, and made good; or it is refused."""

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from crash_scenarios import flip, mend, truncate
from crashing import (
    RUN,
    Whole,
    copied,
    loop,
    quick_folder,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import RunConfig
from lpfloop.stores.garbage import garbage
from lpfloop.stores.inspection import Damage, damages, repair
from lpfloop.stores.journal import ContradictionError, Journal
from lpfloop.stores.journal_opening import check_journal
from lpfloop.stores.journal_pages import PAGES, DamagedJournalError
from lpfloop.stores.journal_reader import JOURNAL, JournalError, Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.packs import path_of
from lpfloop.stores.sealed import read_part

pytestmark = pytest.mark.crash

DAMAGES: dict[str, Callable[[Path], None]] = {
    "a bit flipped": flip,
    "cut short": truncate,
    "emptied": lambda path: path.write_bytes(b"") and None,
    "deleted": lambda path: path.unlink(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A lake with a run of two iterations; `longer` is what a third one makes of it."""

    lake: Path
    config: RunConfig
    straight: Whole
    longer: Whole

    @property
    def another(self) -> RunConfig:
        """Return the configuration that asks for one more iteration."""
        return self.config.model_copy(update={"iterations": 3})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder, stand_ins(folder):
        config = small_config(write_prompts(folder))
        lake = folder / "lake"
        loop(lake, config=config)
        found = Finished(lake=lake, config=config, straight=whole(lake), longer=whole(lake))
        further = copied(lake, folder / "longer")
        loop(further, config=found.another)
        yield replace(found, longer=whole(further))


@pytest.fixture
def lake(finished: Finished, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield copied(finished.lake, folder / "lake")


def sealed(lake: Path) -> list[Path]:
    """Return every file that the journal stands for, relative to the run's folder."""
    folder = run_folder(lake, RUN)
    parts = sorted(folder.glob("parts/*/*.parquet"))
    published = sorted(path for path in folder.glob("checkpoints/**/*") if path.is_file())
    assert parts
    assert published
    return [path.relative_to(folder) for path in (*parts, *published)]


def found(lake: Path) -> list[Damage]:
    reader = Reader(run_folder(lake, RUN))
    seen = damages(reader, deep=True)
    reader.close()
    return seen


def units(lake: Path, place: Path) -> list[str]:
    """Return the units whose rows lie in a part, or that published the checkpoint of a file."""
    folder = run_folder(lake, RUN)
    reader = Reader(folder)
    parts = reader.parts(table=place.parts[1] if place.parts[0] == "parts" else "checkpoints")
    reader.close()
    if place.parts[0] == "parts":
        return [part.unit for part in parts if part.sha256 == place.stem]
    published = {part.unit: read_part(path_of(folder, part), part.sha256) for part in parts}
    return [
        u for u, rows in published.items() if place.parts[1] in rows["checkpoint_id"].to_pylist()
    ]


def resume(lake: Path, config: RunConfig) -> None:
    with stand_ins(lake):
        loop(lake, config=config)


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_to_any_sealed_file_names_exactly_its_units(finished, lake, kind):
    folder = run_folder(lake, RUN)
    for place in sealed(lake):
        (folder / place).unlink()
        (folder / place).write_bytes((run_folder(finished.lake, RUN) / place).read_bytes())
        DAMAGES[kind](folder / place)
        assert [damage.unit for damage in found(lake)] == units(finished.lake, place), place
        (folder / place).write_bytes((run_folder(finished.lake, RUN) / place).read_bytes())
    assert found(lake) == []


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_a_longer_run_reads_heals_by_itself_and_the_rest_by_a_repair(finished, tmp_path, kind):
    for place in sealed(finished.lake)[list(DAMAGES).index(kind) :: len(DAMAGES)]:
        with quick_folder(tmp_path) as folder:
            lake = copied(finished.lake, folder / "lake")
            DAMAGES[kind](run_folder(lake, RUN) / place)
            resume(lake, finished.another)
            left = [damage.unit for damage in found(lake)]
            assert left in ([], units(finished.lake, place)), place
            if left:
                with stand_ins(lake):
                    mend(lake, config=finished.another)
            assert whole(lake) == finished.longer, place


def test_weights_that_an_iteration_begins_with_heal_by_themselves_and_others_by_a_repair(
    finished, lake
):
    weights = [place for place in sealed(lake) if place.name == "weights"]
    m_1, m_2 = sorted(weights, key=lambda place: iteration_of(finished.lake, place))
    truncate(run_folder(lake, RUN) / m_2)
    resume(lake, finished.another)
    assert whole(lake) == finished.longer
    truncate(run_folder(lake, RUN) / m_1)
    resume(lake, finished.another)
    assert [damage.unit for damage in found(lake)] == units(lake, m_1)
    with stand_ins(lake):
        mend(lake, config=finished.another)
    assert whole(lake) == finished.longer


def iteration_of(lake: Path, place: Path) -> int:
    reader = Reader(run_folder(lake, RUN))
    (iteration,) = {p.iteration for p in reader.parts() if p.unit in units(lake, place)}
    reader.close()
    return iteration


def test_what_was_damaged_is_kept_aside_until_its_rows_are_made_again(finished, lake):
    place = next(place for place in sealed(lake) if place.parts[1] == "critiques")
    flip(run_folder(lake, RUN) / place)
    altered = (run_folder(lake, RUN) / place).read_bytes()
    journal = Journal(run_folder(lake, RUN))
    (damage,) = repair(journal)
    (aside,) = (journal.folder / "quarantine").iterdir()
    assert aside.read_bytes() == altered
    assert aside not in [piece.path for piece in garbage(journal)]
    assert journal.lost() == [damage.unit]
    journal.close()
    resume(lake, finished.config)
    reader = Reader(run_folder(lake, RUN))
    assert aside in [piece.path for piece in garbage(reader)]
    reader.close()
    assert whole(lake) == finished.straight


def test_a_file_added_to_a_checkpoint_is_damage(finished, lake):
    place = next(place for place in sealed(lake) if place.name == "weights")
    (run_folder(lake, RUN) / place).with_name("more").write_text("code")
    (damage,) = found(lake)
    assert [damage.unit] == units(lake, place)


def test_a_policy_that_answers_otherwise_is_found_out_and_redone_on_demand(tmp_path):
    answers = "policy.engine.script=crashing:counting_policy"
    # Nobody knows what it answers, so there are enough prompts for a pair.
    config = small_config(write_prompts(tmp_path, 32), answers, "prompts.per_iteration=12")
    with stand_ins(tmp_path):
        loop(tmp_path, config=config)
        before = whole(tmp_path)
        place = next(p for p in sealed(tmp_path) if p.parts[1] == "candidates")
        (run_folder(tmp_path, RUN) / place).unlink()
        with pytest.raises(
            ContradictionError, match="`lpfloop lake repair a --redo` keeps the new ones"
        ):
            mend(tmp_path, config=config)
        with pytest.raises(ContradictionError):
            loop(tmp_path, config=config)
        mend(tmp_path, config=config, redo=True)
    after = whole(tmp_path)
    assert (after.owed, after.damaged, after.repeated) == ([], [], [])
    assert after.units == before.units
    assert after.digest != before.digest


def test_a_redo_counts_what_was_spent_before_it(tmp_path):
    config = small_config(write_prompts(tmp_path))
    with stand_ins(tmp_path):
        loop(tmp_path, config=config)
        reader = Reader(run_folder(tmp_path, RUN))
        before = reader.spent()
        reader.close()
        place = next(p for p in sealed(tmp_path) if p.parts[1] == "candidates")
        (run_folder(tmp_path, RUN) / place).unlink()
        mend(tmp_path, config=config, redo=True)
    reader = Reader(run_folder(tmp_path, RUN))
    after = reader.spent()
    reader.close()
    assert before.judge_calls > 0
    assert after.judge_calls > before.judge_calls
    assert after.tokens > before.tokens


def _change_journal(lake: Path, sql: str) -> None:
    database = sqlite3.connect(run_folder(lake, RUN) / JOURNAL)
    with database:
        database.execute(sql)
    database.close()
    # A newer version would have hashed its pages in a form of its own.
    (run_folder(lake, RUN) / PAGES).unlink()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("PRAGMA user_version = 99", "newer lpfloop .*journal 99"),
        ("UPDATE meta SET value = '99' WHERE key = 'schema'", "schema 99"),
    ],
)
def test_a_journal_that_is_newer_than_the_code_is_refused(finished, lake, sql, said):
    _change_journal(lake, sql)
    for use in (Reader, Journal):
        with pytest.raises(JournalError, match=said):
            use(run_folder(lake, RUN))
    with pytest.raises(JournalError, match=said):
        resume(lake, finished.config)


def test_a_damaged_journal_is_found(finished, lake):
    path = run_folder(lake, RUN) / JOURNAL
    check_journal(path.parent)
    data = bytearray(path.read_bytes())
    for place in range(4096 + 8, len(data), 4096):
        data[place : place + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(DamagedJournalError, match="is damaged"):
        check_journal(path.parent)
