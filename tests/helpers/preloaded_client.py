"""The program that replaces the Python interpreter: see `preloaded`.

It runs without `site` and imports built-in modules alone, so that it takes a hundredth of a
second. Its first argument is the folder of the servers, the others are Python's.
"""

import _signal
import _socket
import fcntl
import marshal
import os
import struct
import sys
import time

KINDS = {
    "lpfloop": "loop",
    "accelerate.commands.launch": "trainer",
    "lpfloop.policies.train_worker": "trainer",
    "lpfloop.policies.workers.worker_main": "worker",
}
"""The server for each module."""

FORWARDED = (
    *(_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2),
    *(_signal.SIGTERM, _signal.SIGCONT, _signal.SIGWINCH),
)
NUMBER = struct.Struct("=i")


def module_of(arguments: list[str]) -> str | None:
    """Return the module that Python would run, for the command lines of this project."""
    plain = [argument for argument in arguments[:3] if argument != "-P"]
    return plain[1] if plain[:1] == ["-m"] else None


def connected(folder: str, kind: str) -> _socket.socket:
    """Connect to the server; start it if needed."""
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    address = f"{folder}/{kind}"
    with open(f"{address}.lock", "ab") as lock:  # noqa: PTH123 -- pathlib takes its time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if server.connect_ex(address) == 0:
            return server
        start(folder, kind)
        while server.connect_ex(address):
            time.sleep(0.01)
    return server


def start(folder: str, kind: str) -> None:
    """Start a server in a new session, with the environment of the tests."""
    if os.fork():
        return
    os.setsid()
    log = os.open(f"{folder}/{kind}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 256)
    with open(f"{folder}/environment", "rb") as stored:  # noqa: PTH123
        environment = marshal.load(stored)  # noqa: S302 -- written by `preloaded`
    script = os.path.join(os.path.dirname(__file__), "preloaded_server.py")  # noqa: PTH118, PTH120
    os.execve(sys.executable, [sys.executable, script, folder, kind, "lpfloop"], environment)  # noqa: S606


def open_files() -> list[int]:
    """Return the numbers of this process's open files."""
    return [number for number in range(256) if is_open(number)]


def is_open(number: int) -> bool:
    """Return whether a file descriptor is open."""
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def ask(server: _socket.socket, arguments: list[str], files: list[int]) -> int:
    """Send the child's arguments, environment and files; return its process id."""
    ignored = [s for s in FORWARDED if _signal.getsignal(s) == _signal.SIG_IGN]
    umask = os.umask(0o77)
    asked = (arguments, dict(os.environb), os.getcwdb(), umask, files, ignored)  # noqa: PTH109
    body = marshal.dumps(asked)
    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack(f"={len(files)}i", *files))
    server.sendmsg([NUMBER.pack(len(body))], [rights])
    server.sendall(body)
    for number in files:
        os.close(number)
    return answer(server)


def answer(server: _socket.socket) -> int:
    """Receive a number from the server.

    Raises:
        EOFError: if the server is gone.
    """
    data = b""
    while len(data) < NUMBER.size:
        more = server.recv(NUMBER.size - len(data))
        if not more:
            raise EOFError
        data += more
    return NUMBER.unpack(data)[0]


def stand_for(child: int, server: _socket.socket, mask: set[int]) -> None:
    """Pass signals on until the child ends, and end as it did; `mask` was blocked before."""

    def forward(number: int, _frame: object) -> None:
        try:  # noqa: SIM105 -- contextlib takes its time
            os.kill(child, number)
        except ProcessLookupError:
            # The child has ended and the server reaped it; the server is about to send the exit
            # status.
            pass

    for number in FORWARDED:
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)
    code = os.waitstatus_to_exitcode(answer(server))
    if code < 0:
        if -code != _signal.SIGKILL:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(folder: str, arguments: list[str]) -> None:
    """Have a server fork the child; call the real interpreter if no server has the module."""
    kind = KINDS.get(module_of(arguments) or "")
    files = open_files()
    if kind is None:
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
    server = connected(folder, kind)
    # Block signals until this process can forward them to the child, which may already run.
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, FORWARDED)
    stand_for(ask(server, arguments, files), server, mask)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
