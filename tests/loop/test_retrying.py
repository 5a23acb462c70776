"""What no annotator decided can be asked again, until a model has learned from the rest."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from crashing import KILLED, RUN, Attempt, Silent, calls, stand_ins
from judges import judged_config
from typer.testing import CliRunner

from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.retry_unscored import to_retry
from lpfloop.stores.frames import frame_rows
from lpfloop.stores.journal import AMENDED, Done, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.packs import path_of
from lpfloop.stores.records import SCORED, Pair, Preference

UNTRAINED = (
    "iterations=1",
    "prompts.chunk=10",
    "training.min_pairs=1000000",
    "annotation.flip_probability=0.1",
)


def turned(lake: Path, *, config: RunConfig, name: str = RUN, again: bool = False) -> None:
    """Turn the loop as far as it comes."""
    job = Job(config=config, lake=lake, name=name, retry_unscored=again)
    with suppress(NothingToTrainOn):
        run_loop(job, Silent(), StopSignal())


def rows(lake: Path, row_type=Preference, table: str = "preferences", name: str = RUN) -> list:
    reader = RunReader(run_folder(lake, name))
    found = frame_rows(row_type, reader.scan(table).collect())
    reader.close()
    return sorted(found, key=repr)


def unread(found: list[Preference]) -> list[Preference]:
    return [row for row in found if row.status != SCORED]


@pytest.fixture
def lake(tmp_path) -> Path:
    """A lake whose run has made its pairs, some of which nobody could decide."""
    with stand_ins(tmp_path):
        turned(tmp_path, config=config(tmp_path))
    return tmp_path


def config(folder: Path, *overrides: str) -> RunConfig:
    return judged_config(folder, "unsure", *UNTRAINED, *overrides)


def retry(lake: Path, **changes) -> None:
    with stand_ins(lake):
        turned(lake, config=config(lake), again=True, **changes)


def test_what_has_no_verdict_is_asked_again_and_the_rest_is_kept(lake):
    before, pairs = rows(lake), rows(lake, Pair, "pairs")
    asked = calls(lake)
    retry(lake)
    after = rows(lake)
    assert 0 < len(unread(after)) < len(unread(before))
    kept = {row.preference_id: row for row in after}
    assert all(kept[row.preference_id] == row for row in before if row.status == SCORED)
    assert kept.keys() == {row.preference_id for row in before}
    assert len(rows(lake, Pair, "pairs")) > len(pairs)
    assert sum((calls(lake) - asked).values()) == 0, "no candidate was drawn again"


def test_to_ask_again_is_as_if_more_replies_had_been_allowed_at_first(lake):
    retry(lake)
    with stand_ins(lake):
        turned(lake, config=config(lake, "annotation.attempts=4"), name="b")
    assert rows(lake) == rows(lake, name="b")
    assert rows(lake, Pair, "pairs") == rows(lake, Pair, "pairs", name="b")


def test_it_is_noted_counted_and_can_be_done_until_all_is_read(lake):
    while left := unread(rows(lake)):
        retry(lake)
        assert len(unread(rows(lake))) <= len(left)
    reader = Reader(run_folder(lake, RUN))
    events = reader.events(AMENDED)
    totals = [state.totals for state in reader.stages() if state.stage.startswith("annotate:")]
    reader.close()
    assert events
    assert {event["replies"] % 2 for event in events} == {0}
    assert sum(stage["unscored"] for stage in totals) == 0
    assert sum(stage["retries"] for stage in totals) > 0
    assert sum(stage["rows"] for stage in totals) == len(rows(lake))
    retry(lake)


def test_an_amended_unit_that_is_lost_comes_out_the_same(lake):
    retry(lake)
    wanted = rows(lake)
    reader = Reader(run_folder(lake, RUN))
    amended = {event["unit"] for event in reader.events(AMENDED)}
    lost = [part for part in reader.parts(table="preferences") if part.unit in amended]
    paths = [path_of(reader.folder, part) for part in lost]
    reader.close()
    for path in paths:
        path.unlink()
    journal = Journal(run_folder(lake, RUN))
    for part in lost:
        journal.lose(part.unit)
    journal.close()
    with stand_ins(lake):
        turned(lake, config=config(lake))
    assert rows(lake) == wanted


def trained(lake: Path) -> None:
    """Let it seem as if iteration 1 had trained."""
    journal = Journal(run_folder(lake, RUN))
    (unit,) = journal.keys(1, "train")
    journal.commit([Done(unit=unit, parts={}, telemetry={})])
    journal.close()


def test_what_a_model_learned_from_is_not_changed_afterwards(lake):
    trained(lake)
    before = rows(lake)
    reader = Reader(run_folder(lake, RUN))
    with pytest.raises(ConfigError, match="iteration 1 has trained on the others already"):
        to_retry(reader)
    reader.close()
    assert rows(lake) == before


def resume(lake: Path):
    with stand_ins(lake):
        return CliRunner().invoke(app, ["resume", RUN, "--retry-unscored", "--lake", str(lake)])


def test_resume_says_what_it_asks_again_and_does_so(lake):
    before = unread(rows(lake))
    told = resume(lake)
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.output
    assert "asks again about" in told.stderr
    assert "iteration 1, annotate:sample:one" in told.stderr
    assert len(unread(rows(lake))) < len(before)


def test_resume_refuses_in_one_sentence_what_comes_too_late(lake):
    trained(lake)
    reader = Reader(run_folder(lake, RUN))
    events = len(reader.all_events())
    told = resume(lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stderr.startswith("error: --retry-unscored: ")
    assert len(told.stderr.splitlines()) == 1
    assert len(reader.all_events()) == events
    reader.close()


def test_answers_that_were_evaluated_can_be_compared_again_and_are_counted_again(tmp_path):
    wanted = judged_config(
        tmp_path, "unsure", "iterations=0", "assessment.reference=tiny", "annotation.attempts=1"
    )
    with stand_ins(tmp_path):
        turned(tmp_path, config=wanted)
        before, first = unread(rows(tmp_path)), numbers(tmp_path)
        turned(tmp_path, config=wanted, again=True)
    assert len(unread(rows(tmp_path))) < len(before)
    assert numbers(tmp_path)["win_rate"] > first["win_rate"]


def numbers(lake: Path) -> dict[str, int]:
    reader = RunReader(run_folder(lake, RUN))
    found = reader.scan("evaluations").select("metric", "n").collect()
    reader.close()
    return dict(found.iter_rows())


@pytest.mark.crash
@pytest.mark.parametrize("point", ["before#1", "after#1", "before#2", "after#3"])
def test_killed_while_it_asks_again_a_run_goes_on_as_if_nothing_had_been(lake, tmp_path, point):
    again = partial(turned, config=config(lake), again=True)
    points = {f"journal.amend.{point}": "kill"}
    assert Attempt(lake=lake, work=again, points=points).start() == KILLED
    for row in unread(rows(lake)):
        assert row.preferred is None
    Attempt(lake=lake, work=partial(turned, config=config(lake))).finish()
    assert len({row.preference_id for row in rows(lake)}) == len(rows(lake))
    decided = [r for r in rows(lake) if r.preferred in ("first", "second")]
    assert len(rows(lake, Pair, "pairs")) == len(decided)
