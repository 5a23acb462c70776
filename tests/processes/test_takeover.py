"""A run in a bucket survives its machine: another one takes it over, with the same digest."""

import dataclasses
import logging
import os
import re
import shutil
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from crashes import in_bucket
from rows import CANDIDATE
from s3 import bad_way, environment
from typer.testing import CliRunner
from world import KILLED, RUN, Attempt, Silent, loop_and_look, seen, small_config, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon import iterations
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores import run_lease
from lpfloop.stores.address import STATE, BucketError, lake_folder
from lpfloop.stores.bucket import Bucket
from lpfloop.stores.failpoints import arm
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.records import Candidate
from lpfloop.stores.run_lease import TakenOverError, newest_head, snapshots
from lpfloop.stores.takeover import TakeoverError, take_over

FACTS = {"config": "{}", "fingerprint": "{}"}
HANG_S = 250
"""Limit of a wait that should end earlier."""


@pytest.fixture
def url(bucket) -> str:
    return f"s3://{bucket}/team/lake"


@pytest.fixture
def machine(url, tmp_path, environ):
    """Switch to a machine of this name; return its view of the lake."""

    def move(name: str) -> Path:
        environ[STATE] = str(tmp_path / name)
        return lake_folder(url)

    return move


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    return small_config(write_prompts(tmp_path_factory.mktemp("prompts")))


@pytest.fixture(scope="module")
def digest(config, tmp_path_factory) -> str:
    """The digest of an undisturbed run in a folder."""
    lake = tmp_path_factory.mktemp("folder")
    Attempt(lake=lake, work=partial(loop_and_look, config=config)).finish()
    return seen(lake).digest


def started(lake: Path) -> Path:
    """Make a run with its journal in the bucket, and close it cleanly; return its folder."""
    folder = run_folder(lake, RUN)
    Journal.create(folder, FACTS).close()
    return folder


@pytest.fixture
def call(environ):
    """Call a command on a lake, in this process; return its exit code, stdout and stderr."""

    def called(lake: object, *words: object) -> tuple[int, str, str]:
        environ["LPFLOOP_LAKE"] = str(lake)
        done = CliRunner().invoke(app, [*map(str, words)])
        return done.exit_code, done.stdout, done.stderr

    return called


def bucket_of_run(url: str) -> Bucket:
    return Bucket(f"{url}/runs/{RUN}")


def test_taken_head_commits_nothing(machine, url, call):
    folder = run_folder(machine("one"), RUN)
    old = Journal.create(folder, FACTS)
    old.keeper.take_snapshot()
    take_over(machine("two"), RUN, force=True)
    said = rf"run {RUN} was taken over"
    with pytest.raises(TakenOverError, match=said):
        old.keeper.check_head()
    with pytest.raises(TakenOverError, match=said):
        old.record("note", "lost")
    with pytest.raises(TakenOverError, match=said):
        old.keeper.take_snapshot()
    old.close()
    assert {snapshot.epoch for snapshot in snapshots(bucket_of_run(url))} == {3}
    machine("one")
    with pytest.raises(TakenOverError, match="no longer"):
        Journal(folder)
    code, _, stderr = call(url, "lake", "gc", RUN)
    assert (code, "no longer" in stderr) == (2, True)
    with pytest.raises(TakeoverError, match=re.escape(str(folder))):
        take_over(machine("one"), RUN)


def test_living_head_left_alone(machine, monkeypatch):
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    journal.keeper.take_snapshot()
    lake = machine("two")
    with pytest.raises(BucketError, match="lpfloop takeover"):
        Journal.create(run_folder(lake, RUN), FACTS)
    with pytest.raises(TakeoverError, match="--force"):
        take_over(lake, RUN)
    assert not run_folder(lake, RUN).exists()
    monkeypatch.setattr("lpfloop.stores.takeover.ALIVE_S", -1.0)
    assert take_over(lake, RUN).before.epoch == 1
    journal.close()


def test_one_of_three_takes_over(machine, url):
    started(machine("one"))
    lakes = [machine(name) for name in ("two", "three", "four")]
    results = list[object]()
    # All of them see that the run can be taken over before any of them takes it.
    seen_by_all = threading.Barrier(len(lakes), timeout=HANG_S)
    about_to_take = {f"head.take.before#{n + 1}": lambda _: seen_by_all.wait() for n in range(3)}

    def take(lake: Path) -> None:
        try:
            results.append(take_over(lake, RUN).folder)
        except (TakenOverError, TakeoverError) as error:
            results.append(error)

    threads = [threading.Thread(target=take, args=(lake,), daemon=True) for lake in lakes]
    with arm(about_to_take):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == len(lakes)
    won = [result for result in results if isinstance(result, Path)]
    assert len(won) == 1
    newest = newest_head(bucket_of_run(url))
    assert newest is not None
    assert run_lease.is_own(won[0], newest)
    Journal(won[0]).close()


def test_damaged_snapshot_passed_over(machine, url):
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    journal.record("note", "first")
    journal.keeper.take_snapshot()
    journal.record("note", "second")
    journal.close()
    newest, before = snapshots(bucket_of_run(url))
    bucket_of_run(url).put(newest.name, b"spoiled")
    found = take_over(machine("two"), RUN)
    assert (found.passed_over, found.snapshot.number) == (1, before.number)
    with closing(RunReader(found.folder)) as run:
        assert run.journal.events("note") == ["first"]
    for each in snapshots(bucket_of_run(url)):
        bucket_of_run(url).put(each.name, b"spoiled")
    with pytest.raises(TakeoverError, match="all damaged"):
        take_over(machine("three"), RUN)


def test_refusals(machine, url, tmp_path, call):
    lake = machine("one")
    for arguments, said in (
        ((str(tmp_path),), "is a folder: `takeover` is for runs in a bucket"),
        ((url,), "holds no run that is not here"),
        ((url, RUN), "holds no run that could be taken over"),
    ):
        code, _, stderr = call(tmp_path, "takeover", *arguments)
        assert code == 2
        assert said in " ".join(stderr.split())
    started(lake)
    code, _, stderr = call(tmp_path, "takeover", url, RUN)
    assert (code, f"`lpfloop resume {RUN} --lake {url}` continues" in stderr) == (2, True)
    for each in snapshots(bucket_of_run(url)):
        bucket_of_run(url).delete(each.name)
    machine("two")
    code, _, stderr = call(tmp_path, "takeover", url, RUN)
    assert (code, "holds no snapshot of the journal" in stderr) == (2, True)
    assert not run_folder(lake_folder(url), RUN).exists()


def test_no_conditional_writes(machine, monkeypatch):
    monkeypatch.setattr(Bucket, "create", lambda *_: True)
    with pytest.raises(BucketError, match="ignores conditions of writes"):
        Journal.create(run_folder(machine("one"), RUN), FACTS)


def test_bucket_away(machine, s3_server, environ, monkeypatch):
    monkeypatch.setattr(run_lease, "RETRY_S", 0.1)
    monkeypatch.setattr("lpfloop.stores.bucket.ATTEMPTS", 2)
    away, back = threading.Event(), threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "no snapshot of the journal" in record.getMessage():
                away.set()
            if "has a snapshot of the journal" in record.getMessage():
                back.set()

    handler = Heard()
    run_lease.logger.addHandler(handler)
    with bad_way(s3_server) as way:
        environ["AWS_ENDPOINT_URL"] = way.endpoint
        folder = run_folder(machine("one"), RUN)
        store = RunWriter(Journal.create(folder, FACTS))
        way.faults = lambda *_: "503"
        store.journal.record("note", "kept")
        store.journal.keeper.ask()
        assert away.wait(HANG_S)
        store.journal.record("note", "also")
        way.faults = lambda *_: None
        assert back.wait(HANG_S)
        store.close()
    run_lease.logger.removeHandler(handler)
    environ["AWS_ENDPOINT_URL"] = s3_server
    assert take_over(machine("two"), RUN).folder


def with_stage(folder: Path) -> RunWriter:
    """Return a run with a stage of twelve units, one of them unfinished."""
    store = RunWriter(Journal.create(folder, FACTS))
    keys = [f"unit-{chunk}" for chunk in range(12)]
    store.journal.plan(1, "sample", "x", lambda: keys)
    for chunk in range(11):
        commit(store, chunk)
    store.flush()
    return store


def commit(store: RunWriter, chunk: int) -> None:
    row = dataclasses.replace(CANDIDATE, candidate_id=f"cand-{chunk}")
    store.commit(f"unit-{chunk}", {Candidate: [row]}, {})


def test_rows_of_an_open_stage_in_snapshot(machine, url, s3_server, environ):
    """lpfloop seals the stage later; no snapshot refers to its file."""
    with bad_way(s3_server) as way:
        environ["AWS_ENDPOINT_URL"] = way.endpoint
        store = with_stage(run_folder(machine("one"), RUN))
        store.journal.keeper.take_snapshot()
        way.faults = lambda _, path: "503" if "/journal/" in path else None
        commit(store, 11)
        store.seal()
        assert len(bucket_of_run(url).sizes("files")) == 1
        environ["AWS_ENDPOINT_URL"] = s3_server
        found = take_over(machine("two"), RUN, force=True)
        assert found.missing == []
        store.close()
    with closing(RunReader(found.folder)) as run:
        assert run.scan("candidates").collect().height == 11
        assert [unit.key for unit in run.journal.pending(1, "sample")] == ["unit-11"]


def test_missing_is_owed(machine, url):
    store = with_stage(run_folder(machine("one"), RUN))
    commit(store, 11)
    store.close()
    bucket_of_run(url).delete(next(iter(bucket_of_run(url).sizes("files"))))
    found = take_over(machine("two"), RUN)
    assert len(found.missing) == 12
    with closing(RunReader(found.folder)) as run:
        assert len(run.journal.pending(1, "sample")) == 12


@pytest.mark.parametrize("point", ["journal.commit.after#4", "checkpoint.committed#2"])
def test_killed_head_same_digest(point, machine, url, s3_server, config, digest, call):
    lake = machine("one")
    work = partial(in_bucket, endpoint=s3_server, config=config)
    first = partial(_kept_after_each_iteration, endpoint=s3_server, config=config)
    assert Attempt(lake=lake, work=first, points={point: "kill"}).start() == KILLED
    shutil.rmtree(lake)
    lake = machine("two")
    assert call(url, "takeover", url, "--force")[:2] == (0, f"{RUN}\n")
    Attempt(lake=lake, work=work).finish()
    found = seen(lake)
    assert (found.digest, found.damaged, found.pending) == (digest, [], [])


def _kept_after_each_iteration(lake: Path, *, endpoint: str, config: RunConfig) -> None:
    """Run the loop with a snapshot after each iteration at least, however quick the loop is."""
    os.environ.update(environment(endpoint))
    iterations.log_iteration = lambda run, _: run.store.journal.keeper.take_snapshot()
    run_loop(Job(config=config, lake=lake, name=RUN), Silent(), StopSignal())


def test_killed_takeover_begins_again(machine, s3_server):
    started(machine("one"))
    lake = machine("two")
    work = partial(_take_over_there, endpoint=s3_server)
    assert Attempt(lake=lake, work=work, points={"takeover.taken#1": "kill"}).start() == KILLED
    assert not (run_folder(lake, RUN) / JOURNAL).exists()
    assert take_over(lake, RUN).folder == run_folder(lake, RUN)


def _take_over_there(lake: Path, *, endpoint: str) -> None:
    os.environ.update(environment(endpoint))
    take_over(lake, RUN)
