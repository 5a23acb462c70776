"""The control socket of a run: what it obeys, records, refuses, and who may talk to it."""

import json
import socket
import sqlite3
import stat
import subprocess
import threading
from contextlib import contextmanager

import pytest

from lpfloop.configs.load import fields, load_config, resolved
from lpfloop.loop.daemon import control
from lpfloop.loop.daemon.control import (
    Command,
    CommandRefusedError,
    ControlError,
    ControlServer,
    Look,
    NoDaemonError,
    Operator,
    Pause,
    Resume,
    Set,
    Stop,
    alive,
    ask,
    resolved_at,
)
from lpfloop.loop.daemon.status import stop_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import canonical_json

KEY = "sk-planted-in-the-configuration"


class Loop:
    """What a run shows the operator: a configuration, and what became of it."""

    def __init__(self, folder, **stop):
        self.config = load_config("tiny", None, [f"critic.engine.api_key={KEY}"], {})
        self.folder = folder
        self.taken = []
        self.stop = StopSignal(**stop)
        if (folder / "journal.sqlite").exists():
            self.journal = Journal(folder)
        else:
            snapshot = canonical_json(resolved(self.config))
            self.journal = Journal.create(folder, {"config": snapshot})

    def configure(self, config):
        self.taken.append(config)
        self.config = config

    @contextmanager
    def served(self):
        operator = Operator(
            stop=self.stop,
            journal=self.journal,
            config=lambda: self.config,
            configure=self.configure,
        )
        try:
            with ControlServer(self.folder, operator):
                yield self
        finally:
            self.journal.close()


@pytest.fixture
def loop(tmp_path):
    with Loop(tmp_path / "runs" / "a").served() as served:
        yield served


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A loop that is asked to set each of its fields."""
    with Loop(tmp_path_factory.mktemp("shared") / "a").served() as served:
        yield served


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A loop that refuses whatever it is asked for."""
    with Loop(tmp_path_factory.mktemp("refusing") / "a").served() as served:
        yield served


def test_a_pause_is_in_the_journal_when_it_is_acknowledged(loop):
    assert ask(loop.folder, Pause()).paused
    assert loop.stop.paused
    assert loop.journal.meta("paused") == "1"
    assert loop.journal.events("control") == [{"op": "pause"}]
    assert not ask(loop.folder, Resume()).paused
    assert not loop.stop.paused
    assert loop.journal.meta("paused") == "0"


def test_a_paused_run_is_paused_again_after_a_crash_and_until_it_is_lifted(tmp_path):
    with Loop(tmp_path / "a").served():
        ask(tmp_path / "a", Pause())
    with Loop(tmp_path / "a").served() as again:
        assert again.stop.paused
    with Loop(tmp_path / "a", lift_pause=True).served() as lifted:
        assert not lifted.stop.paused
    with Loop(tmp_path / "a").served() as after:
        assert not after.stop.paused


def test_a_stop_is_recorded_and_asked_for(loop):
    ask(loop.folder, Stop())
    assert loop.journal.events("control") == [{"op": "stop", "now": False}]
    assert ask(loop.folder, Look()).stopping
    assert loop.stop.requested


def test_a_live_field_is_set_recorded_and_kept_with_the_run(loop):
    state = ask(loop.folder, Set(path="critic.engine.concurrency", value=7))
    assert state.live["critic.engine.concurrency"] == 7
    (config,) = loop.taken
    assert config.critic.engine.concurrency == 7
    assert config.policy == load_config("tiny", None, (), {}).policy
    stored = json.loads(loop.journal.meta("config"))
    assert stored["critic"]["engine"]["concurrency"] == 7
    assert loop.journal.events("control") == [
        {"op": "set", "path": "critic.engine.concurrency", "value": 7}
    ]


def test_a_secret_stays_in_the_configuration_and_out_of_the_journal(loop):
    ask(loop.folder, Set(path="critic.engine.concurrency", value=7))
    assert loop.config.critic.engine.api_key.get_secret_value() == KEY
    assert KEY not in loop.journal.meta("config")
    assert KEY not in json.dumps(ask(loop.folder, Look()).live)


def test_the_time_to_drain_can_be_set(loop):
    ask(loop.folder, Set(path="drain_s", value=1.5))
    assert loop.stop.drain_s == 1.5


LIVE = [field.path for field in fields() if field.effect == "live"]
FIXED = [field.path for field in fields() if field.effect != "live"]


@pytest.mark.parametrize("path", LIVE)
def test_every_live_field_can_be_set(shared, path):
    value = resolved_at(shared.config, path)
    other = "example" if path == "prices.table" else 3
    wanted = other if value is None else value
    assert ask(shared.folder, Set(path=path, value=wanted)).live[path] == wanted


@pytest.mark.parametrize("path", [*FIXED, "nonsense", "critic", "critic.engine", ""])
def test_other_fields_are_refused(refusing, path):
    with pytest.raises(CommandRefusedError, match=r"cannot change|is no field"):
        ask(refusing.folder, Set(path=path, value=1))
    assert refusing.taken == []
    assert refusing.journal.events("control") == []


@pytest.mark.parametrize("value", [0, -1, "many", None, [1], {"a": 1}, 1e999])
def test_a_value_out_of_range_is_refused(loop, value):
    with pytest.raises(CommandRefusedError, match=r"critic\.engine\.concurrency"):
        ask(loop.folder, Set(path="critic.engine.concurrency", value=value))
    assert loop.taken == []


def test_what_can_not_be_recorded_is_not_done(loop):
    """The journal has passed to another process: this one's commands count no more."""
    other = sqlite3.connect(loop.folder / "journal.sqlite")
    other.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
    other.commit()
    other.close()
    with pytest.raises(CommandRefusedError, match="taken over"):
        ask(loop.folder, Set(path="drain_s", value=1))
    with pytest.raises(CommandRefusedError, match="taken over"):
        ask(loop.folder, Pause())
    assert loop.taken == []
    assert not loop.stop.paused


def test_a_run_nobody_works_on_is_named(tmp_path):
    folder = tmp_path / "a"
    with Loop(folder).served():
        assert alive(folder)
    assert not alive(folder)
    assert not (folder / "control.sock").exists()
    with pytest.raises(NoDaemonError, match="run a"):
        ask(folder, Pause())


def test_the_socket_is_for_the_owner_alone(loop):
    mode = (loop.folder / "control.sock").stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_socket_of_a_dead_daemon_is_replaced(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "control.sock"))
    dead.close()
    assert not alive(folder)
    with Loop(folder).served():
        assert alive(folder)


@pytest.mark.parametrize("shown", [True, False], ids=["linux", "elsewhere"])
def test_the_path_of_the_lake_may_be_long(tmp_path, monkeypatch, shown):
    if not shown:
        monkeypatch.setattr(control, "DESCRIPTORS", tmp_path / "none")
    folder = tmp_path / ("long" * 40) / ("path" * 40) / "a"
    assert len(str(folder)) > 300
    with Loop(folder).served():
        assert ask(folder, Pause()).paused
    assert not (folder / "control.sock").exists()


def test_who_works_on_the_run_is_in_the_journal(loop):
    (start,) = loop.journal.events("start")
    assert start["pid"] == ask(loop.folder, Look()).pid
    assert set(start) == {"pid", "host", "started", "since_boot"}


@pytest.mark.parametrize("now", [False, True])
def test_another_process_that_bears_the_daemons_number_is_let_be(loop, now):
    (start,) = loop.journal.events("start")
    with subprocess.Popen(["sleep", "1000"]) as other:
        for recorded in ({**start, "pid": other.pid}, {"pid": other.pid, "host": start["host"]}):
            loop.journal.record("start", recorded)
            with pytest.raises(ControlError, match=f"it is process {other.pid}"):
                stop_run(loop.folder, now=now, say=print)
        assert other.poll() is None
        other.kill()
    assert loop.journal.events("control") == []


NOISE = {
    "empty": b"",
    "no json": b"pause\n",
    "no command": b"{}\n",
    "unknown command": b'{"op": "explode"}\n',
    "too much said": b'{"op": "pause", "for": 3}\n',
    "wrong type": b'{"op": "stop", "now": "perhaps"}\n',
    "list": b"[]\n",
    "deep": b"[" * 30_000 + b"\n",
    "not text": b"\xff\xfe\x00\n",
    "long": b"x" * 200_000 + b"\n",
    "unfinished": b'{"op": "pa',
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_on_the_socket_changes_nothing(loop, name):
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(loop.folder / "control.sock"))
        try:
            caller.sendall(NOISE[name])
            caller.shutdown(socket.SHUT_WR)
            caller.recv(65536)
        except (BrokenPipeError, ConnectionResetError):
            assert name == "long"  # It is let go before it has said everything.
    assert not ask(loop.folder, Look()).paused
    assert loop.journal.events("control") == []


def test_a_caller_that_says_nothing_is_let_go(loop, monkeypatch):
    monkeypatch.setattr(control, "SILENT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(loop.folder / "control.sock"))
        silent.settimeout(30)
        assert silent.recv(1) == b""
    monkeypatch.undo()
    assert ask(loop.folder, Pause()).paused


def test_a_daemon_that_hangs_is_told_from_one_that_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "ANSWER_S", 0.05)
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(tmp_path / "control.sock"))
        hanging.listen()
        assert alive(tmp_path)
        with pytest.raises(ControlError, match=r"--now") as told:
            ask(tmp_path, Look())
    assert not isinstance(told.value, NoDaemonError)


def test_many_callers_are_all_answered(loop, monkeypatch):
    monkeypatch.setattr(control, "ANSWER_S", 60.0)
    monkeypatch.setattr(control, "SILENT_S", 60.0)
    commands: list[Command] = [Pause(), Resume(), Set(path="drain_s", value=2.0), Look()] * 8
    failures = []

    def call(command):
        try:
            ask(loop.folder, command)
        except ControlError as error:
            failures.append(error)

    threads = [threading.Thread(target=call, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(loop.journal.events("control")) == 24
