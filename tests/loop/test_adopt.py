"""A run in a bucket outlives its machine: another one adopts it, and the digest is the same."""

import dataclasses
import json
import os
import re
import shutil
import threading
import time
import tracemalloc
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from commands import call
from crashing import (
    KILLED,
    RUN,
    Attempt,
    Silent,
    loop_and_look,
    seen,
    small_config,
    write_prompts,
)
from s3 import bad_way, environment
from s3_runs import in_bucket

import lpfloop
from examples import CANDIDATE
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores import heads, journal_pages, journal_snapshots, signs_of_life, snapshot_keeper
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.adoption import AdoptionError, adopt
from lpfloop.stores.bucket import Bucket, BucketError
from lpfloop.stores.failpoints import armed
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.heads import AdoptedError, newest_head
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.journal_snapshots import last_snapshot, snapshots
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.packing import pack_all
from lpfloop.stores.records import Candidate

FACTS = {"config": "{}", "fingerprint": "{}"}
LATE_S = 120
"""What is waited for comes within a fraction of a second, unless the machine is busy."""


@pytest.fixture
def url(bucket) -> str:
    return f"s3://{bucket}/team/lake"


@pytest.fixture
def machine(url, tmp_path, monkeypatch):
    """Move to a machine of this name; return the lake as it has it."""

    def move(name: str) -> Path:
        monkeypatch.setenv(STATE, str(tmp_path / name))
        return lake_folder(url)

    return move


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    return small_config(write_prompts(tmp_path_factory.mktemp("prompts")))


@pytest.fixture(scope="module")
def digest(config, tmp_path_factory) -> str:
    """The digest of the run that nothing happened to, in a folder."""
    lake = tmp_path_factory.mktemp("folder")
    Attempt(lake=lake, work=partial(loop_and_look, config=config)).finish()
    return seen(lake).digest


def started(lake: Path) -> Path:
    """Make a run whose journal is in the bucket, and that was left cleanly; return its folder."""
    folder = run_folder(lake, RUN)
    Journal.create(folder, FACTS).close()
    return folder


def bucket_of_run(url: str) -> Bucket:
    return Bucket(f"{url}/runs/{RUN}")


def test_a_journal_goes_to_the_bucket_once_for_what_it_holds(machine, url):
    folder = run_folder(machine("one"), RUN)
    journal = Journal.create(folder, FACTS)
    journal.take_snapshot()
    journal.take_snapshot()
    assert [s.number for s in snapshots(bucket_of_run(url))] == [1]
    for number in range(4):
        journal.record("note", number)
        journal.take_snapshot()
    kept = snapshots(bucket_of_run(url))
    assert [s.number for s in kept] == [5, 4]
    journal.record("note", 9)
    journal.close()
    last = last_snapshot(folder)
    assert last is not None
    assert (last.number, last.whole) == (6, True)


def test_neither_a_snapshot_nor_an_adoption_holds_the_journal_in_memory(machine, monkeypatch):
    for module in (journal_pages, journal_snapshots):
        monkeypatch.setattr(module, "BLOCK", 2**18)
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    for number in range(32):
        journal.record("note", {"number": number, "much": os.urandom(2**19).hex()})
    held, before = list[int](), pa.total_allocated_bytes()
    with armed({"object.put.before": lambda _: held.append(pa.total_allocated_bytes() - before)}):
        journal.take_snapshot()
    last = last_snapshot(journal.folder)
    assert last is not None
    assert max(held) < last.size / 8
    journal.close()
    tracemalloc.start()
    try:
        folder = adopt(machine("two"), RUN).folder
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (folder / JOURNAL).stat().st_size / 4
    assert not list(folder.glob(".tmp-*"))
    with closing(RunReader(folder)) as run:
        assert len(run.journal.events("note")) == 32


def test_what_was_committed_is_there_on_the_machine_that_adopts(machine):
    started(machine("one"))
    store = RunWriter(Journal(run_folder(machine("one"), RUN)))
    store.journal.record("note", "kept")
    store.keep_own("mine.py", b"def verify(): ...")
    store.close()
    folder = adopt(machine("two"), None).folder
    assert (folder / "own" / "mine.py").read_bytes() == b"def verify(): ..."
    with closing(RunReader(folder)) as run:
        assert run.journal.events("note") == ["kept"]
        assert [told["missing"] for told in run.journal.events("adopted")] == [0]


def test_a_head_that_was_adopted_commits_nothing_more_and_says_so(machine, url):
    folder = run_folder(machine("one"), RUN)
    old = Journal.create(folder, FACTS)
    old.take_snapshot()
    adopt(machine("two"), RUN, force=True)
    said = rf"run {RUN} was adopted by .* at .* \(epoch 3\); this head stops"
    with pytest.raises(AdoptedError, match=said):
        old.check_head()
    with pytest.raises(AdoptedError, match=said):
        old.record("note", "lost")
    with pytest.raises(AdoptedError, match=said):
        old.take_snapshot()
    old.close()
    assert {snapshot.epoch for snapshot in snapshots(bucket_of_run(url))} == {3}
    machine("one")
    with pytest.raises(AdoptedError, match="the run is no longer this machine's"):
        Journal(folder)
    code, _, stderr = call(url, "lake", "gc", RUN)
    assert (code, "the run is no longer this machine's" in stderr) == (2, True)
    with pytest.raises(AdoptionError, match=re.escape(f"move {folder} away first")):
        adopt(machine("one"), RUN)


def test_a_running_head_that_was_adopted_ends_by_itself(machine, monkeypatch):
    monkeypatch.setattr(signs_of_life, "BEAT_S", 0.05)
    store = RunWriter(Journal.create(run_folder(machine("one"), RUN), FACTS))
    told = threading.Event()
    store.journal.on_adopted = told.set
    adopt(machine("two"), RUN, force=True)
    assert told.wait(LATE_S)
    with pytest.raises(AdoptedError):
        store.keeper.ask()
    with pytest.raises(AdoptedError):
        store.keeper.check_head()
    store.close()


@pytest.fixture
def beats(s3_server, monkeypatch):
    """Let heads give signs all the time; return what waits for three of them, and their way."""
    monkeypatch.setattr(signs_of_life, "BEAT_S", 0.02)
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)

        def given() -> bool:
            begun, deadline = len(way.seen), time.monotonic() + LATE_S
            while time.monotonic() < deadline:
                puts = [path for method, path in way.seen[begun:] if method == "PUT"]
                if sum(".beat" in path for path in puts) >= 3:
                    return True
                time.sleep(0.01)
            return False

        yield given, way
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)


def test_a_head_that_sends_a_large_snapshot_gives_signs_meanwhile(machine, beats):
    given, way = beats
    store = RunWriter(Journal.create(run_folder(machine("one"), RUN), FACTS))
    begun, over = threading.Event(), threading.Event()

    def held(method: str, path: str) -> None:
        if method == "PUT" and "/journal/" in path:
            begun.set()
            over.wait()

    way.faults = held
    store.journal.record("note", "much")
    store.keeper.ask()
    begun.wait()
    try:
        assert given()
    finally:
        over.set()
        store.close()


def test_whoever_holds_a_run_without_working_on_it_gives_signs_until_it_ends(machine, beats):
    given, _ = beats
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    assert given()
    journal.close()
    # The last sign says that this head has ended: no `force` is needed.
    with armed({"adopt.taken": lambda _: told.append(given())}):
        told = list[bool]()
        adopt(machine("two"), RUN)
    assert told == [True]


def test_a_head_that_may_be_alive_is_left_alone_unless_forced(machine, monkeypatch):
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    journal.take_snapshot()
    lake = machine("two")
    with pytest.raises(AdoptionError, match=r"gave a sign of life \d+ s ago.*--force"):
        adopt(lake, RUN)
    assert not run_folder(lake, RUN).exists()
    monkeypatch.setattr("lpfloop.stores.adoption.ALIVE_S", -1.0)
    assert adopt(lake, RUN).before.epoch == 1
    journal.close()


def test_a_beat_that_is_read_while_it_is_replaced_is_a_sign_of_life(machine, url):
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    journal.take_snapshot()
    bucket = bucket_of_run(url)
    bucket.put(newest_head(bucket).beat, b'{"at": 1795435973.8566062, "ended": fals')
    with pytest.raises(AdoptionError, match=r"gave a sign of life \d+ s ago"):
        adopt(machine("two"), RUN)
    journal.close()


def test_of_two_machines_that_adopt_at_once_one_wins(machine, url):
    started(machine("one"))
    lakes = [machine(name) for name in ("two", "three", "four")]
    results = list[object]()
    # Each has seen that the run can be adopted before any of them takes it.
    seen_by_all = threading.Barrier(len(lakes), timeout=LATE_S)
    about_to_take = {f"head.take.before#{n + 1}": lambda _: seen_by_all.wait() for n in range(3)}

    def take(lake: Path) -> None:
        try:
            results.append(adopt(lake, RUN).folder)
        except (AdoptedError, AdoptionError) as error:
            results.append(error)

    threads = [threading.Thread(target=take, args=(lake,)) for lake in lakes]
    with armed(about_to_take):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == len(lakes)
    won = [result for result in results if isinstance(result, Path)]
    assert len(won) == 1
    newest = newest_head(bucket_of_run(url))
    assert newest is not None
    assert heads.is_own(won[0], newest)
    Journal(won[0]).close()


def test_two_machines_that_begin_a_run_of_one_name_do_not_both_work_on_it(machine):
    first = Journal.create(run_folder(machine("one"), RUN), FACTS)
    with pytest.raises(BucketError, match=f"lpfloop adopt s3://.* {RUN}` goes on with it here"):
        Journal.create(run_folder(machine("two"), RUN), FACTS)
    first.close()


def test_a_damaged_snapshot_gives_way_to_the_one_before(machine, url):
    journal = Journal.create(run_folder(machine("one"), RUN), FACTS)
    journal.record("note", "first")
    journal.take_snapshot()
    journal.record("note", "second")
    journal.close()
    newest, before = snapshots(bucket_of_run(url))
    bucket_of_run(url).put(newest.name, b"spoiled")
    found = adopt(machine("two"), RUN)
    assert (found.passed_over, found.snapshot.number) == (1, before.number)
    with closing(RunReader(found.folder)) as run:
        assert run.journal.events("note") == ["first"]
    for each in snapshots(bucket_of_run(url)):
        bucket_of_run(url).put(each.name, b"spoiled")
    with pytest.raises(AdoptionError, match="2 snapshots of the journal, all damaged"):
        adopt(machine("three"), RUN)
    Journal(run_folder(machine("two"), RUN)).close()


def test_what_cannot_be_adopted_is_refused_by_one_sentence(machine, url, tmp_path):
    lake = machine("one")
    for arguments, said in (
        ((str(tmp_path),), "is a folder: what is adopted lies in a bucket"),
        ((url,), "holds no run that is not here"),
        ((url, RUN), "holds no run that could be adopted"),
    ):
        code, _, stderr = call(tmp_path, "adopt", *arguments)
        assert code == 2
        assert said in " ".join(stderr.split())
    started(lake)
    code, _, stderr = call(tmp_path, "adopt", url, RUN)
    assert (code, f"`lpfloop resume {RUN}` continues" in stderr) == (2, True)
    with pytest.raises(ValueError, match="is on this machine"):
        lpfloop.adopt(url, RUN)
    for each in snapshots(bucket_of_run(url)):
        bucket_of_run(url).delete(each.name)
    machine("two")
    code, _, stderr = call(tmp_path, "adopt", url, RUN)
    assert (code, "holds no snapshot of the journal" in stderr) == (2, True)
    assert not run_folder(lake_folder(url), RUN).exists()


def test_a_store_without_conditional_writes_is_refused(machine, monkeypatch):
    monkeypatch.setattr(heads, "create_object", lambda *_: True)
    with pytest.raises(BucketError, match="ignores conditions of writes"):
        Journal.create(run_folder(machine("one"), RUN), FACTS)


def test_a_bucket_that_is_away_holds_up_nothing_and_is_tried_again(
    machine, s3_server, monkeypatch, caplog
):
    monkeypatch.setattr(snapshot_keeper, "RETRY_S", 0.1)
    monkeypatch.setattr("lpfloop.stores.bucket.ATTEMPTS", 2)
    monkeypatch.setattr("lpfloop.stores.conditional_write.TRIES", 1)
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        folder = run_folder(machine("one"), RUN)
        store = RunWriter(Journal.create(folder, FACTS))
        way.faults = lambda *_: "503"
        store.journal.record("note", "kept")
        store.keeper.ask()
        while "no snapshot of the journal for now" not in caplog.text:
            threading.Event().wait(0.05)
        store.journal.record("note", "also")
        way.faults = lambda *_: None
        while "has a snapshot of the journal again" not in caplog.text:
            threading.Event().wait(0.05)
        store.close()
    assert adopt(machine("two"), RUN).folder


def test_status_says_how_much_of_the_journal_is_in_the_bucket(machine, url):
    folder = started(machine("one"))
    assert json.loads(call(url, "status", "--json")[1])["snapshot"]["lag_s"] == 0.0
    journal = Journal(folder)
    journal.record("note", "not there yet")
    found = json.loads(call(url, "status", "--json")[1])["snapshot"]
    assert found["lag_s"] > 0
    assert "excepted (snapshot 1 of epoch 1)" in call(url, "status")[1]
    journal.close()


def packable(folder: Path) -> RunWriter:
    """Return a run with a finished stage of twelve units, which the bucket's journal has."""
    store = RunWriter(Journal.create(folder, FACTS))
    keys = [f"unit-{chunk}" for chunk in range(12)]
    store.journal.plan(1, "sample", "x", lambda: keys)
    for chunk, key in enumerate(keys):
        row = dataclasses.replace(CANDIDATE, candidate_id=f"cand-{chunk}")
        store.commit(key, {Candidate: [row]}, {})
    store.flush()
    store.journal.take_snapshot()
    return store


@pytest.mark.parametrize("snapshots_fail", [False, True])
def test_parts_go_only_once_a_snapshot_refers_to_their_pack(
    snapshots_fail, machine, url, s3_server, monkeypatch
):
    parts = bucket_of_run(url).sizes
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        store = packable(run_folder(machine("one"), RUN))
        if snapshots_fail:
            way.faults = lambda _, path: "503" if "/journal/" in path else None
            with pytest.raises(BucketError):
                pack_all(store.journal)
        else:
            pack_all(store.journal)
        assert (len(parts("parts")), len(parts("packs"))) == (12 if snapshots_fail else 0, 1)
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
        found = adopt(machine("two"), RUN, force=True)
        assert found.missing == []
        store.close()
    with closing(RunReader(found.folder)) as run:
        assert run.scan("candidates").collect().height == 12


def test_a_head_that_was_adopted_removes_nothing(machine, url):
    store = packable(run_folder(machine("one"), RUN))
    found = adopt(machine("two"), RUN, force=True)
    with pytest.raises(AdoptedError):
        pack_all(store.journal)
    store.close()
    assert len(bucket_of_run(url).sizes("parts")) == 12
    with closing(Journal(found.folder)) as journal:
        assert damages(journal, deep=True) == []
        # What the head before uploaded is no longer anybody's.
        gone = collect(journal, garbage(journal))
        assert {piece.path.parent.parent.name for piece in gone} <= {"packs"}
        assert damages(journal, deep=True) == []


def test_what_is_missing_in_the_bucket_is_owed_again(machine, url):
    store = packable(run_folder(machine("one"), RUN))
    store.close()
    bucket_of_run(url).delete(next(iter(bucket_of_run(url).sizes("parts"))))
    found = adopt(machine("two"), RUN)
    assert len(found.missing) == 1
    with closing(RunReader(found.folder)) as run:
        assert len(run.journal.owed(1, "sample")) == 1


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [
        "snapshot.before#2",
        "snapshot.after#3",
        "object.put.after#6",
        "journal.commit.after#4",
        "checkpoint.published#1",
        "checkpoint.committed#2",
    ],
)
def test_a_head_that_is_killed_anywhere_is_adopted_and_the_digest_is_the_same(
    point, machine, url, tmp_path, s3_server, config, digest
):
    lake = machine("one")
    work = partial(in_bucket, endpoint=s3_server, config=config)
    first = partial(_kept_after_each_iteration, endpoint=s3_server, config=config)
    assert Attempt(lake=lake, work=first, points={point: "kill"}).start() == KILLED
    shutil.rmtree(tmp_path / "one")
    lake = machine("two")
    assert call(tmp_path, "adopt", url, "--force")[:2] == (0, f"{RUN}\n")
    Attempt(lake=lake, work=work).finish()
    found = seen(lake)
    assert (found.digest, found.damaged, found.owed) == (digest, [], [])


def _kept_after_each_iteration(lake: Path, *, endpoint: str, config: RunConfig) -> None:
    """Turn the loop with a snapshot of each iteration at least, however quick the loop is."""
    os.environ.update(environment(endpoint))
    job = Job(config=config, lake=lake, name=RUN)
    run_loop(
        job, Silent(), StopSignal(), on_turned=lambda run, _: run.store.journal.take_snapshot()
    )


@pytest.mark.crash
@pytest.mark.parametrize(
    "point", ["head.take.before", "head.take.after", "adopt.taken", "adopt.fetched"]
)
def test_an_adoption_that_is_killed_begins_anew(point, machine, url, tmp_path, s3_server):
    started(machine("one"))
    lake = machine("two")
    work = partial(_adopt_there, endpoint=s3_server)
    assert Attempt(lake=lake, work=work, points={f"{point}#1": "kill"}).start() == KILLED
    assert not (run_folder(lake, RUN) / JOURNAL).exists()
    assert adopt(lake, RUN).folder == run_folder(lake, RUN)


def _adopt_there(lake: Path, *, endpoint: str) -> None:
    os.environ.update(environment(endpoint))
    adopt(lake, RUN)


@pytest.mark.crash
@pytest.mark.parametrize("noticed", ["before the next stage", "in the midst of one"])
def test_a_head_at_work_that_is_adopted_ends_and_what_it_made_is_neither_lost_nor_doubled(
    noticed, machine, s3_server, config, digest
):
    lake, other = machine("one"), machine("two")
    work = partial(
        _adopted_at_work, endpoint=s3_server, config=config, other=other, noticed=noticed
    )
    assert Attempt(lake=lake, work=work).start() == 1
    said = (lake / "error").read_text()
    assert "AdoptedError: run a was adopted by" in said
    assert "this head stops" in said
    Attempt(lake=other, work=partial(in_bucket, endpoint=s3_server, config=config)).finish()
    found = seen(other)
    assert (found.digest, found.damaged, found.owed) == (digest, [], [])


class _TakenOver(Silent):
    """A reporter: another machine takes the run after a training, or while answers are drawn."""

    def __init__(self, other: Path, stop: StopSignal, noticed: str) -> None:
        self.other, self.stop = other, stop
        self.later = noticed == "before the next stage"
        self.taken = False

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        if (iteration, stage) == (1, "sample") and not self.later and not self.taken:
            self._take()
            while not self.stop.requested:
                time.sleep(0.01)

    def end(self, iteration: int, stage: str) -> None:
        if (iteration, stage) == (1, "train") and self.later:
            self._take()

    def _take(self) -> None:
        self.taken = True
        adopt(self.other, RUN, force=True)


def _adopted_at_work(
    lake: Path, *, endpoint: str, config: RunConfig, other: Path, noticed: str
) -> None:
    os.environ.update(environment(endpoint))
    if noticed == "in the midst of one":
        signs_of_life.BEAT_S = 0.05
    stop = StopSignal()
    run_loop(Job(config=config, lake=lake, name=RUN), _TakenOver(other, stop, noticed), stop)
