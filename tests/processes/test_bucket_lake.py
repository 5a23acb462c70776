"""A lake in a bucket has the rows of a lake in a folder, even after many kills."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from crashes import in_bucket
from processes import call_command
from s3 import environment, new_bucket
from world import KILLED, RUN, Attempt, Whole, loop_and_look, seen, small_config, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.stores.address import STATE, bucket_of, lake_folder
from lpfloop.stores.inspection import repair
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.objects import objects_of

FORK = "b"
KILLED_AT = ("object.put.before#9", "checkpoint.published#1")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    return small_config(write_prompts(tmp_path_factory.mktemp("prompts")))


@pytest.fixture(scope="module")
def expected(config, tmp_path_factory) -> Whole:
    """The contents of a run in a folder."""
    lake = tmp_path_factory.mktemp("folder")
    Attempt(lake=lake, work=partial(loop_and_look, config=config)).finish()
    return seen(lake)


@pytest.fixture(scope="module")
def killed(s3_server, config, tmp_path_factory) -> Iterator[Path]:
    """A lake in a bucket with a run that was killed repeatedly, and then finished."""
    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("state")
        here = {**os.environ, **environment(s3_server), STATE: str(state)}
        patch.setattr(os, "environ", here)
        lake = lake_folder(f"s3://{new_bucket(s3_server)}/team/lake")
        work = partial(in_bucket, endpoint=s3_server, config=config)
        for point in KILLED_AT:
            assert Attempt(lake=lake, work=work, points={point: "kill"}).start() == KILLED, point
        Attempt(lake=lake, work=work).finish()
        yield lake


def test_killed_run_in_bucket_equals_folder(killed, expected):
    assert seen(killed) == expected
    run = run_folder(killed, RUN)
    rows = {path for path in objects_of(run).sizes(run) if path.suffix == ".parquet"}
    reader = RunReader(run)
    committed = {part.file for part in reader.journal.parts()}
    reader.close()
    assert {path.stem for path in rows} >= committed


def test_commands_on_a_bucket(killed, expected):
    address = bucket_of(killed)
    reader = RunReader(run_folder(killed, RUN))
    candidate = reader.scan("candidates").collect()["candidate_id"][0]
    reader.close()
    count = str(expected.rows["candidates"])
    for arguments, said in (
        (("lake", "digest", RUN), expected.digest),
        (("lake", "verify", RUN, "--deep"), "unaltered"),
        (("show", candidate, RUN), "prompt-"),
        (("sql", "select count(*) as n from candidates", "--format", "csv"), count),
    ):
        code, stdout, stderr = call_command(address, *arguments)
        assert code == 0, f"{arguments}: {stderr}"
        assert said in stdout.replace("\n", "")


def test_fork_in_bucket_heals(killed, s3_server, config, expected):
    work = partial(in_bucket, endpoint=s3_server, config=config, name=FORK)
    asked = (killed / "calls").read_text()
    Attempt(lake=killed, work=partial(work, fork=RUN)).finish()
    found = seen(killed)
    assert (found.digest, found.damaged, found.pending) == (expected.digest, [], [])
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
