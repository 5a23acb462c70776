"""Processes of tests: commands, daemons, servers, clusters; and waiting for them."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.endpoint.endpoint import probe
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers.environment import worker_environment
from lpfloop.policies.workers.hosted_model import HostedModel
from lpfloop.policies.workers.model_process import ChildProcess, Opening
from lpfloop.policies.workers.places import Placement
from lpfloop.stores.journal_reader import Reader

POLL_S = 0.02
WAIT_S = 300.0
"""Limit for starting a process that imports torch on a very busy machine."""


def wait_until(happened: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    """Return as soon as `happened`, or fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen in {timeout_s} s"
        time.sleep(POLL_S)


def ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def hosted(config: EngineConfig, log: Path, model: str = "none") -> HostedModel[EngineConfig]:
    """Open an engine with one replica, in a process on this machine that prints to `log`."""

    def start(
        _number: int, _at: Placement, model: str, config: EngineConfig, wake: threading.Event
    ) -> ChildProcess:
        return ChildProcess(Opening(kind=config.kind, model=model, config=config), wake, log=log)

    return HostedModel(start, model, config, lambda _config: [Placement(place="local")])


@contextmanager
def held_port() -> Generator[int]:
    """Reserve a free port of loopback.

    A server with SO_REUSEADDR, as usual for servers, can still bind it.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


SMALL = {
    "LPFLOOP_PROMPTS__PER_ITERATION": "120", "LPFLOOP_PROMPTS__MAX_TEST": "80",
    "LPFLOOP_PROMPTS__MAX_DEV": "80", "LPFLOOP_PROMPTS__CHUNK": "15",
    "LPFLOOP_TRAINING__MIN_PAIRS": "4", "LPFLOOP_TRAINING__DPO__LEARNING_RATE": "2e-4",
}  # fmt: skip
"""A fifth of the prompts, and larger steps, since there are few: enough to see M_1 improve."""
LIMIT_S = 1800
"""Limit for two iterations of real models on a very busy machine."""


def start_command(
    lake: Path, *arguments: object, cwd: Path | None = None, python: str | None = None
) -> subprocess.Popen[str]:
    """Start `lpfloop` with a small world, in a new session."""
    return subprocess.Popen(
        [python or sys.executable, "-m", "lpfloop", *map(str, arguments)],
        env={**os.environ, **SMALL, "LPFLOOP_LAKE": str(lake)}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=cwd,
    )  # fmt: skip


def call_command(
    lake: Path, *arguments: object, cwd: Path | None = None, python: str | None = None
) -> tuple[int, str, str]:
    """Run `lpfloop` to its end; return its exit code, stdout and stderr."""
    process = start_command(lake, *arguments, cwd=cwd, python=python)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    return process.returncode, stdout, stderr


# a daemon behind a gate


SUPPORT = Path(__file__).parent
_LIMIT_S = 900
"""A command takes seconds, one with reports about twenty; on a busy machine, minutes."""
FREE = 1_000_000
GATED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:gated"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 6, max_test: 2, dev_share: 0, chunk: 1}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 1, m: 0}
"""
EVALUATED, SAMPLED = 2, 6
"""Units of one request each: M_0's evaluation, then the samples of iteration 1."""


class Operated:
    """A run in a new lake, called `slow` by default, and the commands that operate it."""

    def __init__(self, folder: Path, config: str = GATED, name: str = "slow") -> None:
        self.lake = folder / "lake"
        self.run = self.lake / "runs" / name
        self.gate = folder / "gate"
        self.config = folder / "slow.yaml"
        self.config.write_text(config)
        self.allow(FREE)
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(SUPPORT),
            "GATE": str(self.gate),
            "LPFLOOP_LAKE": str(self.lake),
        }
        self.options = ["--config", str(self.config), "--run", name]

    def allow(self, requests: int) -> None:
        """Allow so many requests in all."""
        draft = self.gate.with_suffix(".new")
        draft.write_text(str(requests))
        draft.replace(self.gate)

    def start(self, *arguments: str, **options) -> subprocess.Popen[str]:
        """Start a command."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(
            [sys.executable, "-m", "lpfloop", *arguments],
            env=self.environment,
            **{"text": True, **streams},
        )

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end."""
        process = self.start(*arguments)
        stdout, stderr = process.communicate(timeout=_LIMIT_S)
        return process.returncode, stdout, stderr

    def detach(self, *arguments: str) -> int:
        """Start the run as a daemon; return its process id."""
        code, stdout, stderr = self.call(*(arguments or ("run", *self.options)), "--detach")
        assert code == 0, stderr
        pid, name = stdout.split()
        assert name == self.run.name
        return int(pid)

    def done(self, stage: str = "sample") -> int:
        """Return how many units of a stage of iteration 1 (or 0) are committed."""
        if not (self.run / "journal.sqlite").exists():
            return 0
        reader = Reader(self.run)
        found = [state.done for state in reader.stages() if state.stage == stage]
        reader.close()
        return sum(found)

    def events(self, kind: str) -> list:
        """Return the journal's events of a kind."""
        reader = Reader(self.run)
        found = reader.events(kind)
        reader.close()
        return found

    def asked(self) -> int:
        """Return the number of requests that the policy received."""
        path = self.gate.with_suffix(".asked")
        return len(path.read_text().splitlines()) if path.exists() else 0

    def end(self) -> None:
        """Kill a daemon that a test has left running."""
        for event in self.events("start") if (self.run / "journal.sqlite").exists() else ():
            try:
                if "lpfloop" in Path(f"/proc/{event['pid']}/cmdline").read_text():
                    os.kill(event["pid"], signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue


# the viewer


_LIMIT_S = 300


@dataclass(frozen=True, slots=True)
class Viewer:
    """A running viewer: the address that it printed, and its pages' common prefix."""

    entry: str

    @property
    def own(self) -> str:
        """Common prefix of its pages' addresses."""
        return self.entry.partition("?")[0].rstrip("/")


@contextmanager
def viewing(lake: Path, *arguments: str) -> Iterator[Viewer]:
    """Start the viewer of a lake; end it like Ctrl-C does, and check that it ends cleanly."""
    with subprocess.Popen(
        [sys.executable, "-m", "lpfloop", "view", *arguments, "--lake", str(lake)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            entry = process.stdout.readline().strip()
            assert entry.startswith("http://127.0.0.1:"), process.stderr.read()
            yield Viewer(entry)
        finally:
            process.send_signal(signal.SIGINT)
            talk = process.communicate(timeout=_LIMIT_S)[1]
        assert process.returncode == 0, talk
        assert "Traceback" not in talk


# vLLM's server


SERVER_KEY = "made-up-key"
_START_S = 900
"""Half a minute is enough, unless the machine is busy."""


@dataclass(frozen=True)
class Endpoint:
    """A started server; it answers after `wait_until_served`."""

    url: str
    log: Path


@contextmanager
def serving(model: Path, log: Path) -> Generator[Endpoint]:
    """Start the server of `model` under the name `policy`; end it with all its processes."""
    flags = ["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"]
    names = ["--model", str(model), "--served-model-name", "policy"]
    with held_port() as port, log.open("wb") as output:
        address = ["--host", "127.0.0.1", "--port", str(port), "--api-key", SERVER_KEY]
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *names, *address, *flags],
            env=worker_environment(), stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
        try:
            yield Endpoint(f"http://127.0.0.1:{port}/v1", log)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def wait_until_served(endpoint: Endpoint) -> None:
    """Return when the server answers; fail the test if it never does."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            assert probe(endpoint.url, SERVER_KEY) == "policy"
        except EngineError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"the server did not start: {endpoint.log.read_text()[-2000:]}")


# a Ray cluster of one node


_START_S = 600.0
_CPUS = 6
"""CPUs that the node declares; a scripted worker needs almost none."""

_RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise Ray's processes have the lowest priority on a busy machine.
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}


@contextmanager
def ray_cluster_of(
    *folders: Path, variables: Mapping[str, str] | None = None, more: tuple[str, ...] = ()
) -> Iterator[str]:
    """Start a cluster whose processes also import from `folders`; yield its address, and end it."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temp:
        address = f"127.0.0.1:{_free_port()}"
        log = Path(temp) / "start.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from ray.scripts.scripts import main; main()"),
                    *("start", "--head", "--block", "--disable-usage-stats"),
                    *("--port", address.rpartition(":")[2], "--num-cpus", str(_CPUS)),
                    *("--node-ip-address", "127.0.0.1", "--include-dashboard", "false"),
                    *("--include-log-monitor", "false", "--object-store-memory", "100000000"),
                    *("--ray-client-server-port", str(_free_port())),
                    *("--temp-dir", temp),
                    *more,
                ],
                env=_environment(folders) | (variables or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_for_ray(process, log)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _environment(folders: tuple[Path, ...]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = [str(folder) for folder in folders] + [os.environ.get("PYTHONPATH", "")]
    return {**own, **_RAY, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _wait_for_ray(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _START_S
    while "Ray runtime started" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"no Ray cluster was started: {log.read_text(errors='replace')}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
