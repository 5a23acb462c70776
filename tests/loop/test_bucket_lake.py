"""A lake in a bucket gives the rows of a lake in a folder, however often its run was killed."""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from commands import call
from crashing import KILLED, RUN, Attempt, Whole, loop_and_look, seen, small_config, write_prompts
from s3 import bad_way, environment, new_bucket
from s3_runs import in_bucket

from lpfloop.configs.schema import RunConfig
from lpfloop.stores.address import STATE, bucket_of, lake_folder
from lpfloop.stores.bucket import Bucket
from lpfloop.stores.inspection import repair
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.objects import objects_of

FORK = "b"
KILLED_AT = (
    "object.put.before#1",
    "object.put.after#2",
    "journal.commit.before#3",
    "object.put.before#9",
    "lake.commit.after#4",
    "checkpoint.trained#1",
    "checkpoint.published#1",
    "checkpoint.committed#2",
)


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    return small_config(write_prompts(tmp_path_factory.mktemp("prompts")))


@pytest.fixture(scope="module")
def expected(config, tmp_path_factory) -> Whole:
    """What a run on a folder holds."""
    lake = tmp_path_factory.mktemp("folder")
    Attempt(lake=lake, work=partial(loop_and_look, config=config)).finish()
    return seen(lake)


@pytest.fixture(scope="module")
def killed(s3_server, config, tmp_path_factory) -> Iterator[Path]:
    """A lake in a bucket with a run that was killed again and again, and then finished."""
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("state")
        for name, value in {**environment(s3_server), STATE: str(state)}.items():
            patch.setenv(name, value)
        lake = lake_folder(f"s3://{new_bucket(s3_server)}/team/lake")
        work = partial(in_bucket, endpoint=s3_server, config=config)
        for point in KILLED_AT:
            assert Attempt(lake=lake, work=work, points={point: "kill"}).start() == KILLED, point
        Attempt(lake=lake, work=work).finish()
        yield lake


@pytest.fixture
def lake(bucket, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    return lake_folder(f"s3://{bucket}/team/lake")


@pytest.mark.crash
def test_a_run_in_a_bucket_is_that_in_a_folder_however_often_it_was_killed(killed, expected):
    assert seen(killed) == expected
    run = run_folder(killed, RUN)
    rows = {path for path in objects_of(run).sizes(run) if path.suffix == ".parquet"}
    reader = RunReader(run)
    committed = {part.sha256 for part in reader.journal.parts()}
    reader.close()
    assert {path.stem for path in rows} >= committed
    # What is here are copies of what the trainer read.
    assert set(run.glob("p*/*/*.parquet")) < rows


def test_commands_read_a_lake_in_a_bucket(killed, expected):
    address = bucket_of(killed)
    reader = RunReader(run_folder(killed, RUN))
    candidate = reader.scan("candidates").collect()["candidate_id"][0]
    reader.close()
    count = str(expected.rows["candidates"])
    for arguments, said in (
        (("lake", "digest", RUN), expected.digest),
        (("lake", "verify", RUN, "--deep"), "unaltered"),
        (("show", candidate, "--run", RUN), "prompt-"),
        (("sql", "select count(*) as n from candidates", "--format", "csv"), count),
        (("lake", "reindex", RUN), ""),
        (("search", "seen", "--table", "critiques", "--json"), "seen"),
        (("lake", "gc", RUN), "gone"),
    ):
        code, stdout, stderr = call(address, *arguments)
        assert code == 0, f"{arguments}: {stderr}"
        assert said in stdout.replace("\n", "")


def test_status_says_where_rows_and_journal_are(killed):
    code, stdout, _ = call(bucket_of(killed), "status", "--json")
    assert code == 0
    status = json.loads(stdout)
    assert (status["bucket"], status["folder"]) == (bucket_of(killed), str(run_folder(killed, RUN)))


def test_an_address_that_names_no_bucket_is_refused():
    code, _, stderr = call("s3://key:secret@x/y", "status")
    assert code == 2
    assert "s3://BUCKET/PREFIX" in stderr
    assert "secret" not in stderr


def test_a_fork_in_a_bucket_takes_over_what_holds_and_heals(killed, s3_server, config, expected):
    work = partial(in_bucket, endpoint=s3_server, config=config, name=FORK)
    asked = (killed / "calls").read_text()
    Attempt(lake=killed, work=partial(work, fork=RUN)).finish()
    found = seen(killed)
    assert (found.digest, found.damaged, found.owed) == (expected.digest, [], [])
    assert (killed / "calls").read_text() == asked
    run = run_folder(killed, FORK)
    objects = objects_of(run)
    path = next(path for path in objects.sizes(run) if path.parent.name == "critiques")
    objects._bucket.put(objects._name(path), b"spoiled")
    journal = Journal(run)
    assert {damage.path for damage in repair(journal)} == {path}
    journal.close()
    Attempt(lake=killed, work=work).finish()
    assert (seen(killed).digest, seen(killed).damaged) == (expected.digest, [])
    assert objects.sizes(run / "quarantine")


def test_a_run_waits_for_its_bucket_and_fetches_the_copies_it_needs(
    lake, s3_server, config, expected
):
    with bad_way(s3_server) as way:
        work = partial(in_bucket, endpoint=way.endpoint, config=config)
        at = {"checkpoint.committed": "kill"}
        assert Attempt(lake=lake, work=work, points=at).start() == KILLED
        run = run_folder(lake, RUN)
        shutil.rmtree(run / "checkpoints")
        shutil.rmtree(run / "canaries")
        first = len(way.seen)
        way.faults = lambda *_: "500" if first + 20 < len(way.seen) < first + 60 else None
        Attempt(lake=lake, work=work).finish()
        assert len(way.seen) > first + 60
    assert seen(lake) == expected


def test_a_name_whose_objects_this_machine_does_not_know_is_refused(lake, s3_server, config):
    address = bucket_of(lake)
    Bucket(f"{address}/runs/{RUN}").put("parts/prompts/x.parquet", b"x")
    work = partial(in_bucket, endpoint=s3_server, config=config)
    assert Attempt(lake=lake, work=work).start() == 1
    said = (lake / "error").read_text()
    assert f"BucketError: {address} holds 1 objects of a run {RUN} whose journal is not" in said
    assert not (run_folder(lake, RUN) / JOURNAL).exists()
