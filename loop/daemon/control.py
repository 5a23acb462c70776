"""Operating a living run over a Unix socket in its folder: pause, resume, stop, set.

One JSON line asks, one answers. The socket can be opened by the run's owner only. A command is in
the journal before it is acknowledged, so acknowledged commands survive a crash.
"""

import logging
import os
import selectors
import signal
import socket
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter, getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Self

import apsw
import psutil
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as message

from ...configs.load import Override, resolve_config, settable, stored_config
from ...configs.mistakes import alike, did_you_mean, list_names
from ...configs.schema import ConfigError, RunConfig
from ...configs.secrecy import redact
from ...configs.section import with_values
from ...policies.engines.engine import EngineError
from ...stores.address import run_argument
from ...stores.journal import FencedError
from ...stores.journal_reader import JournalError
from ...stores.keys import Json, canonical_json
from ..run.run import Run
from ..run.stop import START
from .machine_check import require_replicas

SOCKET = "control.sock"
MODE = 0o600
REFUSALS = (ConfigError, EngineError, JournalError, FencedError, apsw.Error, OSError)
"""Errors that refuse a command: the caller gets the error, and the server continues."""
DESCRIPTORS = Path("/proc/self/fd")
"""Folders that are open, by number; Linux alone shows them so that paths can go through."""
LINE_BYTES = 65_536
ANSWER_S = 20.0
"""How long a caller waits: a command only writes a row or two, but the machine may be busy."""
SILENT_S = 5.0
"""How long a silent caller keeps the others waiting."""

EXACT = ConfigDict(extra="forbid", strict=True)
"""A command with an extra word is from another version."""

PAUSED = "paused"
CONTROL = "control"
_log = logging.getLogger("lpfloop.control")


@message(config=EXACT, frozen=True, slots=True, kw_only=True)
class Command:
    """A command to a run.

    `look` asks for the state alone. `pause` begins no new unit until `resume`. `stop` ends the run:
    requests in flight may finish, or not even these if `now`. `set` changes the live field `path`,
    from the next unit on.
    """

    op: Literal["look", "pause", "resume", "stop", "set"]
    now: bool = False
    path: str = ""
    value: object = None


_COMMAND: TypeAdapter[Command] = TypeAdapter(Command)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A living daemon: its process, whether it is paused or stopping, the live fields by path."""

    pid: int
    paused: bool
    stopping: bool
    live: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a command: the state after it, or why it was refused."""

    state: State
    error: str | None = None


_ANSWER: TypeAdapter[Answer] = TypeAdapter(Answer)


class ControlError(RuntimeError):
    """A command that was not obeyed; the message is the reason."""

    code = "LPF-220"


class NoDaemonError(ControlError):
    """Nobody works on the run."""

    code = "LPF-221"


class CommandRefusedError(ControlError):
    """The daemon refused the command."""

    code = "LPF-222"


class ControlServer:
    """Serves a run's socket while the process that holds the run's lock is in the block.

    Its thread changes the run's configuration, which is effective from the next unit on.
    """

    def __init__(self, run: Run) -> None:
        self._run, self._stop = run, run.stop
        self._folder, self._journal = run.store.folder, run.store.journal
        self._thread = threading.Thread(target=self._serve, name="control", daemon=True)

    def __enter__(self) -> Self:
        """Record who works on the run, take up its pause, and listen."""
        self._stop.shutdown_timeout_s = self._run.config.shutdown_timeout_s
        self._record_start()
        self._restore_pause()
        self._wake, self._woken = socket.socketpair()
        self._listener = _listen(self._folder)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop answering."""
        self._wake.close()
        self._thread.join()
        self._woken.close()
        self._listener.close()
        with suppress(OSError), _at(self._folder) as address:
            Path(address).unlink(missing_ok=True)

    def _record_start(self) -> None:
        process = psutil.Process()
        who: Json = {
            "pid": process.pid,
            "host": socket.gethostname(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "since_boot": since_boot(process),
        }
        self._journal.record(START, who)

    def _restore_pause(self) -> None:
        journal, stop = self._journal, self._stop
        if journal.meta(PAUSED) != "1":
            return
        if stop.lift_pause:
            journal.record(CONTROL, {"op": "resume"})
            journal.set_meta([(PAUSED, "0")])
        else:
            stop.pause()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._listener, selectors.EVENT_READ)
            waiting.register(self._woken, selectors.EVENT_READ)
            while not any(key.fileobj is self._woken for key, _ in waiting.select()):
                try:
                    connection, _ = self._listener.accept()
                    with connection:
                        self._converse(connection)
                except OSError as error:
                    _log.warning("a command was lost: %s", error)

    def _converse(self, connection: socket.socket) -> None:
        """Obey one caller; a caller that sends nothing in time is disconnected."""
        connection.settimeout(SILENT_S)
        line = _read_line(connection)
        if not line:
            return
        command: Command | None = None
        error = None
        try:
            command = _COMMAND.validate_json(line)
            self._obey(command)
        except ValidationError:
            error = "this lpfloop does not know that command: use the version that runs the daemon"
        except REFUSALS as refused:
            error = str(refused)
        if command is None or command.op != "look":
            _log.info("%s: %s", command or "unknown command", error or "done")
        answer = Answer(state=self._state(), error=error)
        # The caller may have gone away: its command is carried out anyway.
        with suppress(OSError):
            connection.sendall(_ANSWER.dump_json(answer) + b"\n")
        if command is not None and command.op == "stop":
            if command.now:
                self._stop.at_once(signal.SIGTERM)
            self._stop.request()

    def _obey(self, command: Command) -> None:
        journal, stop = self._journal, self._stop
        match command.op:
            case "look":
                return
            case "pause" | "resume":
                paused = command.op == "pause"
                journal.record(CONTROL, {"op": command.op})
                journal.set_meta([(PAUSED, "1" if paused else "0")])
                (stop.pause if paused else stop.unpause)()
            case "stop":
                journal.record(CONTROL, {"op": command.op, "now": command.now})
            case "set":
                self._set(command)

    def _set(self, command: Command) -> None:
        """Make a setting effective, then keep it in the journal; undo it if either fails."""
        run, before = self._run, self._run.config
        config = with_live(before, command.path, command.value)
        value = resolved_values(config, [command.path])[command.path]
        try:
            run.configure(config)
            kept = {"op": command.op, "path": command.path, "value": value}
            self._journal.record(CONTROL, kept)
            self._journal.set_meta([("config", canonical_json(resolve_config(config)))])
        except REFUSALS:
            run.configure(before)
            raise
        self._stop.shutdown_timeout_s = config.shutdown_timeout_s

    def _state(self) -> State:
        stop, config = self._stop, self._run.config
        return State(
            pid=os.getpid(),
            paused=stop.paused,
            stopping=stop.requested,
            live=resolved_values(config, live_paths()),
        )


def since_boot(process: psutil.Process) -> float:
    """Return how many seconds after the machine's boot a process was started.

    A process id is re-used; together with this value it identifies one process. Both terms follow a
    clock that can be set, so their difference does not change with it.
    """
    return process.create_time() - psutil.boot_time()


def with_live(config: RunConfig, path: str, value: object) -> RunConfig:
    """Return `config` with one live field changed, and checked like any configuration.

    Raises:
        ConfigError: for a field that is not live, or a value that it cannot have.
    """
    live = live_paths()
    if path not in live:
        known = {field.path for field in settable()}
        why = "cannot change while a run is active" if path in known else "is no field"
        raise ConfigError(f"{path} {why}; {_settable(path, live)}")
    change = Override(source="ctl set", path=path, value=value)
    checked = stored_config({**resolve_config(config), "recipe": config.recipe}, [change], {})
    # Of the checked configuration only this value is taken: it lacks the secrets.
    changed = with_values(config, {path: attrgetter(path)(checked)})
    require_replicas(changed, path)
    return changed


def _settable(path: str, live: Sequence[str]) -> str:
    """Return a hint on the live field probably meant: one of that last name, or of a like name."""
    last = path.rpartition(".")[2]
    same = [other for other in live if other.rpartition(".")[2] == last]
    hint = f"did you mean {same[0]!r}? " if same else did_you_mean(path, live)
    return f"{hint}these can be set: {list_names(alike(path, live), 'all: `lpfloop ctl get`')}"


def live_paths() -> list[str]:
    """Return the fields that may change during a run, by their dotted paths."""
    return [field.path for field in settable() if field.effect == "live"]


def resolved_values(config: RunConfig, paths: Sequence[str]) -> dict[str, Json]:
    """Return some values of the configuration as plain data, by their dotted paths."""
    whole: Any = resolve_config(config)
    return {path: reduce(getitem, path.split("."), whole) for path in paths}


def ask(folder: Path, command: Command) -> State:
    """Send a command to the daemon of the run in `folder`; return its state after it.

    Raises:
        NoDaemonError: if no process works on the run.
        CommandRefusedError: if the daemon refuses; the message is the reason.
        ControlError: if the daemon does not answer in time.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            _connect(client, folder)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise NoDaemonError(
                f"no daemon works on run {folder.name} on this machine; "
                f"`lpfloop resume {run_argument(folder)}` continues it unless it is finished"
            ) from error
        try:
            client.sendall(_COMMAND.dump_json(command) + b"\n")
            line = _read_line(client)
        except TimeoutError as error:
            raise ControlError(
                f"the daemon of run {folder.name} gave no answer within {ANSWER_S:.0f} s; "
                f"`lpfloop stop {run_argument(folder)} --now` kills it"
            ) from error
        except ConnectionError:
            line = b""
    if not line:
        raise NoDaemonError(f"the daemon of run {folder.name} ended before it answered")
    answer = _ANSWER.validate_json(line)
    if answer.error is not None:
        raise CommandRefusedError(redact(answer.error))
    return answer.state


def alive(folder: Path) -> bool:
    """Whether a process of this machine works on the run: the kernel answers, even if it hangs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            _connect(client, folder)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True
    return True


def _connect(client: socket.socket, folder: Path) -> None:
    client.settimeout(ANSWER_S)
    with _at(folder) as address:
        client.connect(address)


def _listen(folder: Path) -> socket.socket:
    """Bind the run's socket; the lock is held, so one that is there already belongs to the dead."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Before it has a name, so that it is open to others at no moment. macOS knows no mode of a
    # socket without one; there the run's folder, which is the owner's alone, keeps others out.
    with suppress(OSError):
        os.fchmod(listener.fileno(), MODE)
    with _at(folder) as address:
        Path(address).unlink(missing_ok=True)
        listener.bind(address)
        Path(address).chmod(MODE)
    listener.listen()
    listener.settimeout(0)
    return listener


@contextmanager
def _at(folder: Path) -> Generator[str]:
    """Yield a short address of the socket, as paths may have only 103 bytes."""
    if not DESCRIPTORS.is_dir():
        with TemporaryDirectory(prefix="lpfloop-") as short:
            link = Path(short) / "run"
            link.symlink_to(folder.absolute())
            yield str(link / SOCKET)
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(DESCRIPTORS / str(handle) / SOCKET)
    finally:
        os.close(handle)


def _read_line(connection: socket.socket) -> bytes:
    """Return one line, or empty bytes if the other side has closed without one."""
    data = b""
    while not data.endswith(b"\n"):
        more = connection.recv(LINE_BYTES)
        if not more or len(data) > LINE_BYTES:
            return b""
        data += more
    return data
