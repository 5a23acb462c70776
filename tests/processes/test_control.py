"""The control socket of a run: commands that it obeys, records and refuses; its access control."""

import json
import socket
import stat
import subprocess
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from lpfloop.configs.load import fields, load_config, resolve_config
from lpfloop.loop.daemon.control import (
    Command,
    CommandRefusedError,
    ControlError,
    ControlServer,
    NoDaemonError,
    alive,
    ask,
)
from lpfloop.loop.daemon.status import stop_run
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.engines.engine import EngineError
from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import canonical_json

KEY = "sk-planted-in-the-configuration"


class Loop:
    """State of a run that the operator sees: its configuration and outcome."""

    def __init__(self, folder, **stop):
        self.config = load_config("tiny", None, [f"critic.engine.api_key={KEY}"], {})
        self.folder = folder
        self.taken = []
        self.too_many, self.error = None, None
        self.stop = StopSignal(**stop)
        if (folder / "journal.sqlite").exists():
            self.journal = Journal(folder)
        else:
            snapshot = canonical_json(resolve_config(self.config))
            self.journal = Journal.create(folder, {"config": snapshot})

    def configure(self, config):
        self.taken.append(config)
        self.config = config
        if config.policy.engine.replicas == self.too_many:
            raise self.error

    @contextmanager
    def served(self):
        self.store = SimpleNamespace(folder=self.folder, journal=self.journal)
        try:
            with ControlServer(self):
                yield self
        finally:
            self.journal.close()


@pytest.fixture
def loop(tmp_path):
    with Loop(tmp_path / "runs" / "a").served() as served:
        yield served


def test_pause_set_and_stop_are_recorded(loop):
    (start,) = loop.journal.events("start")
    assert start["pid"] == ask(loop.folder, Command(op="look")).pid
    assert ask(loop.folder, Command(op="pause")).paused
    assert loop.stop.paused
    assert loop.journal.meta("paused") == "1"
    assert loop.journal.events("control") == [{"op": "pause"}]
    assert not ask(loop.folder, Command(op="resume")).paused
    assert not loop.stop.paused
    assert loop.journal.meta("paused") == "0"
    ask(loop.folder, Command(op="set", path="shutdown_timeout_s", value=1.5))
    assert loop.stop.shutdown_timeout_s == 1.5
    ask(loop.folder, Command(op="stop"))
    assert loop.journal.events("control")[-1] == {"op": "stop", "now": False}
    assert ask(loop.folder, Command(op="look")).stopping
    assert loop.stop.requested


def test_pause_outlives_a_crash(tmp_path):
    with Loop(tmp_path / "a").served():
        ask(tmp_path / "a", Command(op="pause"))
    with Loop(tmp_path / "a").served() as again:
        assert again.stop.paused
    with Loop(tmp_path / "a", lift_pause=True).served() as lifted:
        assert not lifted.stop.paused
    with Loop(tmp_path / "a").served() as after:
        assert not after.stop.paused


def test_other_process_of_daemons_number_is_left_alone(loop):
    (start,) = loop.journal.events("start")
    with subprocess.Popen(["sleep", "1000"]) as other:
        for recorded in ({**start, "pid": other.pid}, {"pid": other.pid, "host": start["host"]}):
            loop.journal.record("start", recorded)
            with pytest.raises(ControlError, match=str(other.pid)):
                stop_run(loop.folder, now=True, say=print)
        assert other.poll() is None
        other.kill()
    assert loop.journal.events("control") == []


def test_live_field_is_kept_with_the_run(loop):
    path = "critic.engine.concurrency"
    assert ask(loop.folder, Command(op="set", path=path, value=7)).live[path] == 7
    (config,) = loop.taken
    assert config.critic.engine.concurrency == 7
    assert json.loads(loop.journal.meta("config"))["critic"]["engine"]["concurrency"] == 7
    assert loop.journal.events("control") == [{"op": "set", "path": path, "value": 7}]


@pytest.mark.parametrize("error", [EngineError("no worker"), OSError("no worker")])
def test_setting_that_fails_is_undone(loop, error):
    path = "policy.engine.replicas"
    before, meta = ask(loop.folder, Command(op="look")).live[path], loop.journal.meta("config")

    loop.too_many, loop.error = 3, error
    for _ in range(2):
        with pytest.raises(CommandRefusedError, match="no worker"):
            ask(loop.folder, Command(op="set", path=path, value=3))
    assert ask(loop.folder, Command(op="look")).live[path] == before
    assert loop.journal.events("control") == []
    assert loop.journal.meta("config") == meta
    assert ask(loop.folder, Command(op="pause")).paused


def test_other_fields_are_refused(loop):
    fixed = [field.path for field in fields() if field.effect != "live"]
    for path in [*fixed[::20], "nonsense", "critic", ""]:
        with pytest.raises(CommandRefusedError, match=r"cannot change|is no field"):
            ask(loop.folder, Command(op="set", path=path, value=1))
    for value in [0, "many", None, [1], 1e999]:
        with pytest.raises(CommandRefusedError, match=r"critic\.engine\.concurrency"):
            ask(loop.folder, Command(op="set", path="critic.engine.concurrency", value=value))
    assert loop.taken == []
    assert loop.journal.events("control") == []


def test_run_without_daemon(tmp_path):
    folder = tmp_path / ("long" * 40) / ("path" * 40) / "a"
    with Loop(folder).served():
        assert alive(folder)
        assert stat.S_IMODE((folder / "control.sock").stat().st_mode) == 0o600
    assert not alive(folder)
    assert not (folder / "control.sock").exists()
    with pytest.raises(NoDaemonError, match="run a"):
        ask(folder, Command(op="pause"))


NOISE = [b"", b"pause\n", b'{"op": "explode"}\n', b"[" * 30_000 + b"\n", b"\xff\xfe\x00\n", b'{"op']


def test_socket_noise_ignored(loop):
    for noise in NOISE:
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(str(loop.folder / "control.sock"))
            caller.sendall(noise)
            caller.shutdown(socket.SHUT_WR)
            caller.recv(65536)
    assert not ask(loop.folder, Command(op="look")).paused
    assert loop.journal.events("control") == []
