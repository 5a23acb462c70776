"""lpfloop finds damage to a finished run, names its unit, and repairs or refuses it."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from crashes import flip, mend, truncate
from world import (
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
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.stage_files import UnitRows


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES: tuple[Callable[[Path], None], ...] = (flip, truncate, Path.unlink, empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A lake with a run of two iterations; `longer` is the result of a third iteration."""

    lake: Path
    config: RunConfig
    another: RunConfig
    straight: Whole
    longer: Whole


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder, stand_ins(folder):
        config = small_config(write_prompts(folder))
        another = config.model_copy(update={"iterations": 3})
        lake = folder / "lake"
        loop(lake, config=config)
        further = copied(lake, folder / "longer")
        loop(further, config=another)
        yield Finished(
            lake=lake, config=config, another=another, straight=whole(lake), longer=whole(further)
        )


@pytest.fixture
def lake(finished: Finished, tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield copied(finished.lake, folder / "lake")


def sealed(lake: Path) -> list[Path]:
    folder = run_folder(lake, RUN)
    parts = sorted(folder.glob("files/*/*.parquet"))
    published = sorted(path for path in folder.glob("checkpoints/**/*") if path.is_file())
    return [path.relative_to(folder) for path in (*parts, *published)]


def found(lake: Path) -> list[Damage]:
    with closing(Reader(run_folder(lake, RUN))) as reader:
        return damages(reader, deep=True)


def units(lake: Path, place: Path) -> list[str]:
    """Return the units with rows in a part, or those that published the checkpoint of a file."""
    folder = run_folder(lake, RUN)
    with closing(Reader(folder)) as reader:
        parts = reader.parts(table=place.parts[1] if place.parts[0] == "files" else "checkpoints")
        if place.parts[0] == "files":
            return [part.unit for part in parts if part.file == place.stem]
        read = UnitRows(reader)
        published = {part.unit: read.read(part.unit, part.table) for part in parts}
    return [
        u for u, rows in published.items() if place.parts[1] in rows["checkpoint_id"].to_pylist()
    ]


def one_of_each_kind(lake: Path) -> list[Path]:
    """Return one file of each table, and each kind of file of a checkpoint."""
    return list(
        {
            (p.parts[0], p.parts[1] if p.parts[0] == "files" else p.name): p for p in sealed(lake)
        }.values()
    )


def heal(finished: Finished, folder: Path, place: Path, kind: Callable[[Path], None]) -> None:
    """Damage a file: lpfloop names it, a longer run heals its inputs, and a repair the rest."""
    with quick_folder(folder) as quick:
        lake = copied(finished.lake, quick / "lake")
        damaged = run_folder(lake, RUN) / place
        # The file may be a hard link to the original.
        data = damaged.read_bytes()
        damaged.unlink()
        damaged.write_bytes(data)
        kind(damaged)
        named = [damage.unit for damage in found(lake)]
        assert named == units(finished.lake, place)
        with stand_ins(lake):
            loop(lake, config=finished.another)
            left = [damage.unit for damage in found(lake)]
            assert left in ([], named)
            if left:
                mend(lake, config=finished.another)
        assert whole(lake) == finished.longer


def test_damage_reported_then_healed(finished, tmp_path, subtests):
    for number, place in enumerate(one_of_each_kind(finished.lake)[::3]):
        with subtests.test(place=str(place)):
            heal(finished, tmp_path, place, DAMAGES[number % len(DAMAGES)])


@pytest.mark.stress
@pytest.mark.parametrize("kind", DAMAGES, ids=lambda kind: kind.__name__)
def test_damage_to_every_file(finished, tmp_path, subtests, kind):
    for place in sealed(finished.lake):
        with subtests.test(place=str(place)):
            heal(finished, tmp_path, place, kind)


def test_damaged_file_is_kept_aside(finished, lake):
    place = next(place for place in sealed(lake) if place.parts[1] == "critiques")
    flip(run_folder(lake, RUN) / place)
    altered = (run_folder(lake, RUN) / place).read_bytes()
    journal = Journal(run_folder(lake, RUN))
    damaged = repair(journal)
    (aside,) = (journal.folder / "quarantine").iterdir()
    assert aside.read_bytes() == altered
    assert aside not in [piece.path for piece in garbage(journal)]
    assert sorted(journal.damaged_units()) == sorted(damage.unit for damage in damaged)
    journal.close()
    with stand_ins(lake):
        loop(lake, config=finished.config)
    with closing(Reader(run_folder(lake, RUN))) as reader:
        assert aside in [piece.path for piece in garbage(reader)]
    assert whole(lake) == finished.straight


def test_file_added_to_checkpoint(finished, lake):
    place = next(place for place in sealed(lake) if place.name == "weights")
    (run_folder(lake, RUN) / place).with_name("more").write_text("code")
    (damage,) = found(lake)
    assert [damage.unit] == units(lake, place)


def test_other_answers_are_refused_and_redone(tmp_path):
    answers = "policy.engine.script=world:counting_policy"
    # Nobody can predict the policy's answers, so there are enough prompts for a pair.
    config = small_config(write_prompts(tmp_path, 32), answers, "prompts.per_iteration=12")
    with stand_ins(tmp_path):
        loop(tmp_path, config=config)
        before = whole(tmp_path)
        place = next(p for p in sealed(tmp_path) if p.parts[1] == "candidates")
        (run_folder(tmp_path, RUN) / place).unlink()
        with pytest.raises(ContradictionError, match="--redo"):
            mend(tmp_path, config=config)
        with pytest.raises(ContradictionError):
            loop(tmp_path, config=config)
        mend(tmp_path, config=config, redo=True)
    after = whole(tmp_path)
    assert (after.pending, after.damaged, after.repeated) == ([], [], [])
    assert after.units == before.units
    assert after.digest != before.digest
