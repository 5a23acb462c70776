"""Workers that join by TCP, as real processes, and a line to them that can be cut and stopped."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from preloaded import INTERPRETER

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.workers.join_listener import JoinListener
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.worker import child_workers
from lpfloop.policies.workers.worker_models import WorkerEngine

SUPPORT = Path(__file__).parent
TOKEN = b"a token of a test, long enough"
TCP = Berth(place="tcp")
MANY = Berth(place="tcp", many=True)
LOCAL = Berth(place="local")
ENDS_S = 300


class SlowLine:
    """A line between a worker and its head, which a test can stop, or cut in two."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._head = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.flows = {"up": threading.Event(), "down": threading.Event()}
        self.passed = {"up": 0, "down": 0}
        self.cut_up_at: int | None = None
        self._workers: list[socket.socket] = []
        for flow in self.flows.values():
            flow.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self, *ways: str) -> None:
        """Pass nothing on, ends included, without closing anything."""
        for way in ways:
            self.flows[way].clear()

    def heal(self) -> None:
        """Pass on what was held back, and what follows."""
        for flow in self.flows.values():
            flow.set()

    def tell_worker(self, data: bytes) -> None:
        """Say something to the worker that joined last, as its head would."""
        self._workers[-1].sendall(data)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                worker, _ = self._listener.accept()
                self._workers.append(worker)
                head = socket.create_connection(self._head)
                for way, ends in (("up", (worker, head)), ("down", (head, worker))):
                    threading.Thread(target=self._pass, args=(way, *ends), daemon=True).start()

    def _pass(self, way: str, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                self.flows[way].wait()
                self.passed[way] += len(data)
                if way == "up" and self.cut_up_at is not None and self.passed[way] > self.cut_up_at:
                    self.cut_up_at = None
                    target.sendall(data[: len(data) // 2])
                    break
                target.sendall(data)
        self.flows[way].wait()
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Machines:
    """Workers that were started, each a process of `lpfloop worker`; all end with the test."""

    def __init__(self, folder: Path, *scripts: Path) -> None:
        self.folder = folder
        self.token = folder / "token"
        self.token.write_bytes(TOKEN)
        self.processes: list[subprocess.Popen[str]] = []
        paths = [str(SUPPORT), *map(str, scripts), os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def start(self, address: str, *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start a worker that joins there."""
        number = len(self.processes)
        where = ["--join", address, "--machine", f"m{number}", "--logs", str(self.folder / "logs")]
        token = () if "LPFLOOP_JOIN_TOKEN" in variables else ("--token-file", str(self.token))
        self.processes.append(
            subprocess.Popen(
                [INTERPRETER, "-m", "lpfloop", "worker", *where, *token, *options],
                env={**self.environment, **variables},
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return self.processes[-1]

    def end(self) -> None:
        """Kill those that still run."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDS_S)
            process.kill()
            process.wait()
            if process.stderr:
                process.stderr.close()


def scripted_pool(
    listener: JoinListener, berths: Sequence[Berth], folder: Path, script: str, group: str = "model"
) -> EnginePool:
    """Open a pool of a scripted model, here and at machines that join."""

    def opener(number: int, berth: Berth, model: str, config: EngineConfig) -> WorkerEngine:
        here = child_workers(log=folder / f"local-{number}.log")
        start = here if berth.place == "local" else listener.starter(group, berth.gpus)
        return WorkerEngine("scripted", model, config, start=start)

    config = EngineConfig(kind="scripted", script=script)
    return EnginePool(opener, "none", config, berths)
