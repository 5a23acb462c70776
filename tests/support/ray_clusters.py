"""A real Ray cluster on this machine, of one node, for the tests of what runs in one."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

START_S = 600.0
CPUS = 6
"""What the node says that it has; a scripted worker needs next to nothing of one."""

QUIET = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Else what Ray starts comes after all others on a busy machine.
    "RAY_worker_niceness": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}


@contextmanager
def ray_cluster_of(*folders: Path, cpus: int = CPUS, more: tuple[str, ...] = ()) -> Iterator[str]:
    """Start a cluster whose processes import from `folders`, too; give its address, and end it."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temp:
        address = f"127.0.0.1:{_free_port()}"
        log = Path(temp) / "start.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-c", "from ray.scripts.scripts import main; main()"),
                    *("start", "--head", "--block", "--disable-usage-stats"),
                    *("--port", address.rpartition(":")[2], "--num-cpus", str(cpus)),
                    *("--node-ip-address", "127.0.0.1", "--include-dashboard", "false"),
                    *("--include-log-monitor", "false", "--object-store-memory", "100000000"),
                    *("--ray-client-server-port", str(_free_port())),
                    *("--temp-dir", temp),
                    *more,
                ],
                env=_environment(folders),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            _wait_for(process, log)
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
    return {**own, **QUIET, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _wait_for(process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while "Ray runtime started" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"no Ray cluster was started: {log.read_text(errors='replace')}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
