"""The server process: it has imported its children's modules, and forks them; see `preloaded`."""

import array
import atexit
import importlib
import io
import marshal
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

NUMBER = struct.Struct("=i")
LOOK_S = 1.0
MOST_FILES = 253


@dataclass(frozen=True, slots=True)
class Asked:
    """Request of the client program: module, arguments, environment, folder and open files."""

    arguments: list[str]
    environment: dict[bytes, bytes]
    folder: bytes
    umask: int
    files: list[int]
    ignored: list[int]


# before the children


def loop_modules() -> list[str]:
    """Return the modules of the loop's process; of model libraries, only the chat templates'."""
    import lpfloop

    root = Path(lpfloop.__path__[0])
    paths = [
        path.relative_to(root).with_suffix("")
        for folder in ("configs", "stores", "loop")
        for path in root.glob(f"{folder}/**/*.py")
    ]
    own = [".".join(["lpfloop", *path.parts]) for path in paths if "tiny" not in path.parts]
    libraries = ("pandas", "polars", "pyarrow.dataset", "pyarrow.parquet", "duckdb")
    return [*libraries, "transformers.utils.chat_template_utils", *sorted(own)]


def trainer_modules() -> list[str]:
    """Return the modules that a training imports, including its launcher."""
    return [
        "accelerate.commands.launch",
        "trl.trainer.dpo_trainer",
        "trl.trainer.reward_trainer",
        "trl.trainer.sft_trainer",
        "transformers.models.llama.modeling_llama",
        "lpfloop.policies.run_job",
    ]


def worker_modules() -> list[str]:
    """Return the modules that every worker imports, regardless of its model."""
    return [
        "transformers.models.llama.modeling_llama",
        "vllm.entrypoints.llm",
        "vllm.model_executor.models.llama",
        "vllm.v1.engine.llm_engine",
        "vllm.v1.worker.cpu_worker",
        "lpfloop.policies.workers.worker_main",
    ]


MODULES = {"loop": loop_modules, "trainer": trainer_modules, "worker": worker_modules}
RUN = ("accelerate.commands.launch", "lpfloop.policies.train_worker",
       "lpfloop.policies.workers.worker_main")  # fmt: skip
"""Modules that run as `__main__`: their code runs again."""


def environment_of(kind: str) -> Mapping[str, str]:
    """Return the variables that libraries read during their import."""
    if kind == "loop":
        return {}
    from lpfloop.policies.workers.environment import worker_environment

    return {**worker_environment(), "TQDM_DISABLE": "1"}


def preload(kind: str) -> None:
    """Import the children's modules; skip those that are not installed, as a child reports them."""
    os.environ.update(environment_of(kind))
    for name in MODULES[kind]():
        with suppress(ImportError):
            importlib.import_module(name)
    for name in RUN:
        sys.modules.pop(name, None)


# children


def become(asked: Asked) -> str:
    """Apply a request to this process; return the module that it runs."""
    for number in asked.ignored:
        signal.signal(number, signal.SIG_IGN)
    os.umask(asked.umask)
    os.chdir(asked.folder)
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environb.update(asked.environment)
    own = [path for path in sys.path[1:] if path not in added]
    adding = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    first = asked.arguments.index("-m")
    sys.path[:] = [*([] if "-P" in asked.arguments[:first] else [str(Path.cwd())]), *adding, *own]
    sys.argv[:] = ["-m", *asked.arguments[first + 2 :]]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = written(1), written(2, errors="backslashreplace")
    heed_environment()
    return asked.arguments[first + 1]


def written(file: int, errors: str = "strict") -> TextIO:
    """Return a stream to a file, buffered as the interpreter would."""
    at_once = bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = open(file, "wb", 0 if at_once else -1, closefd=False)  # noqa: SIM115
    lines = file == 2 or os.isatty(file)
    return io.TextIOWrapper(raw, errors=errors, line_buffering=lines, write_through=at_once)


def run(module: str) -> int:
    """Run a module as the interpreter does; return its exit code."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201 -- as the interpreter does
        return 1
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 -- as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def end(code: int) -> NoReturn:
    """End this process as the interpreter does, without freeing all objects one by one."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def heed_environment() -> None:
    """Update modules that read the environment during their import."""
    from lpfloop.stores.failpoints import arm_from_environment

    arm_from_environment()
    if "torch" in sys.modules and "OMP_NUM_THREADS" in os.environ:
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if "datasets" in sys.modules and "HF_DATASETS_CACHE" in os.environ:
        sys.modules["datasets"].config.HF_DATASETS_CACHE = Path(os.environ["HF_DATASETS_CACHE"])


# the server


def received(connection: socket.socket) -> tuple[Asked, list[int]]:
    """Return the request and its files.

    Raises:
        EOFError: if the client is gone.
    """
    room = socket.CMSG_LEN(MOST_FILES * NUMBER.size)
    head, rights, _, _ = connection.recvmsg(NUMBER.size, room)
    files = array.array("i")
    for _, _, data in rights:
        files.frombytes(data)
    left = NUMBER.unpack(head)[0] if head else 1
    body = b""
    while len(body) < left:
        more = connection.recv(left - len(body))
        if not more:
            for file in files:
                os.close(file)
            raise EOFError
        body += more
    return Asked(*marshal.loads(body)), list(files)  # noqa: S302 -- from a program of this user's


def take_over(asked: Asked, files: list[int]) -> None:
    """Give the received files the descriptors that they had in the client."""
    top = max([*files, *asked.files], default=2) + 1
    moved = [os.dup2(file, top + place) for place, file in enumerate(files)]
    os.closerange(0, top)
    for file, number in zip(moved, asked.files, strict=True):
        os.dup2(file, number)
    os.closerange(top, top + len(moved))


class Server:
    """Forks a child for each connection, reports its end, and kills it if the client dies."""

    def __init__(self, address: Path, parent: int) -> None:
        self.parent = parent
        self.children: dict[int, socket.socket] = {}
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        draft = address.with_suffix(".new")
        self.listening.bind(str(draft))
        self.listening.listen(128)
        draft.rename(address)
        self.woken, self.waking = socket.socketpair()
        self.waking.setblocking(False)

    def serve(self) -> Asked:
        """Serve until the tests end; in a child, return its request."""
        signal.set_wakeup_fd(self.waking.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            connections = {connection: pid for pid, connection in self.children.items()}
            ready, _, _ = select.select([self.listening, self.woken, *connections], [], [], LOOK_S)
            if self.woken in ready:
                self.woken.recv(4096)
            for connection in ready:
                if connection in connections:
                    with suppress(ProcessLookupError):
                        os.killpg(connections[connection], signal.SIGKILL)
            self.collect()
            if self.listening in ready and (asked := self.fork()) is not None:
                return asked
            if not alive(self.parent):
                self.end()

    def fork(self) -> Asked | None:
        """Fork a child for a new connection; in the child, return its request."""
        connection, _ = self.listening.accept()
        try:
            asked, files = received(connection)
        except (EOFError, ConnectionError):
            connection.close()
            return None
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            self.children[pid] = connection
            with suppress(BrokenPipeError):
                connection.sendall(NUMBER.pack(pid))
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for own in (self.listening, self.woken, self.waking, connection, *self.children.values()):
            own.close()
        os.setsid()
        take_over(asked, files)
        return asked

    def collect(self) -> None:
        """Send the exit status of each child that has ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            connection = self.children.pop(pid)
            with suppress(BrokenPipeError):
                connection.sendall(NUMBER.pack(status))
            connection.close()

    def end(self) -> None:
        """End with all children."""
        for pid in self.children:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        sys.exit(0)


def alive(pid: int) -> bool:
    """Return whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main(folder: Path, kind: str) -> None:
    """Serve; a forked child continues here as if its command had started it."""
    server = Server(folder / kind, int((folder / "parent").read_text()))
    preload(kind)
    asked = server.serve()
    sys.executable = str(folder / "python")
    end(run(become(asked)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
