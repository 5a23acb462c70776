"""vLLM's OpenAI-compatible server of one model, as a child of this process that ends with it.

The child runs `python -m lpfloop.policies.workers.serve`, which becomes that server, with the
arguments that a run's engine uses for the same model.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from ipaddress import ip_address
from typing import IO, cast

from ...configs.schema import ConfigError, EngineConfig
from ..devices import ANSWER_S
from ..endpoint.endpoint import api_key, probe
from ..engines.engine import EngineError
from ..engines.vllm_engine import engine_arguments
from .environment import worker_environment
from .model_process import WATCH_S
from .places import local_groups

SERVER = "vllm.entrypoints.openai.api_server"

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"}
"""Hides warnings about vLLM's build and start, which users of the model cannot change."""


def require_free(host: str, port: int) -> None:
    """Refuse an address that the server could not have.

    Raises:
        ConfigError: if the port is in use, the host is not of this machine, or others could reach
            the server without a key.
    """
    if not is_loopback(host) and api_key(EngineConfig()) is None:
        raise ConfigError(
            f"--host {host}: whoever reaches this machine could use the model; set LPFLOOP_API_KEY "
            "to a key that clients must send, or leave --host out"
        )
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        why = str(error.strerror or error).partition(" (")[0]
        raise ConfigError(
            f"{host}:{port} cannot be served: {why}; choose another --port"
        ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class ModelServer:
    """A server that starts at once; its output goes to this process's stderr.

    With LPFLOOP_API_KEY set, clients must send that key.
    """

    def __init__(
        self, model: str, config: EngineConfig, *, name: str, host: str, port: int
    ) -> None:
        self._key = api_key(config)
        self.url = f"http://{host}:{port}/v1"
        self._name = name
        options = ["--host", host, "--port", str(port), "--served-model-name", name]
        opening = {
            "model": model,
            "engine": config.model_dump(mode="json", exclude={"api_key"}),
            "options": [*options, "--disable-uvicorn-access-log"],
        }
        # One server is one copy of the model, and on this machine.
        devices = local_groups(config.model_copy(update={"place": "local"}))[0]
        environment = worker_environment(config, devices) | QUIET
        if self._key is not None:
            environment["VLLM_API_KEY"] = self._key
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.serve", json.dumps(opening)],
            stdin=subprocess.PIPE,
            stdout=sys.__stderr__,
            stderr=sys.__stderr__,
            env=environment,
            start_new_session=True,
        )

    def wait_until_ready(self) -> None:
        """Wait until the server answers.

        Raises:
            EngineError: if it ends before.
        """
        while True:
            with suppress(EngineError):
                probe(self.url, self._key, self._name)
                return
            self._require_alive()
            time.sleep(WATCH_S / 4)

    def wait(self) -> None:
        """Wait until the server ends, which is an error.

        Raises:
            EngineError: if it does.
        """
        self._process.wait()
        self._require_alive()

    def close(self) -> None:
        """End the server: it may finish its requests, then it is killed with its processes."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self._process.wait(ANSWER_S)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        cast("IO[bytes]", self._process.stdin).close()

    def _require_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise EngineError(f"vLLM's server ended {how}; its output is above")


def main(model: str, config: EngineConfig, more: list[str]) -> None:
    """Become the server of a model, until this process gets a signal."""
    from vllm.platforms import current_platform

    threading.Thread(target=_end_with_parent, daemon=True).start()
    on_cpu = bool(current_platform.is_cpu())  # pyright: ignore[reportUnknownMemberType]
    arguments = engine_arguments(model, config, on_cpu=on_cpu)
    sys.argv[1:] = [*flags(arguments), *more]
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def flags(arguments: dict[str, object]) -> list[str]:
    """Return an engine's arguments as options of vLLM's server."""
    found: list[str] = []
    for name, value in arguments.items():
        option = name.replace("_", "-")
        match value:
            case None:
                continue
            case True:
                found.append(f"--{option}")
            case False:
                found.append(f"--no-{option}")
            case dict():
                found.append(f"--{option}={json.dumps(value)}")
            case _:
                found.append(f"--{option}={value}")
    return found


def _end_with_parent() -> None:
    """Wait until the input closes, then end this process and those that it started."""
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    opening = json.loads(sys.argv[1])
    main(opening["model"], EngineConfig.model_validate(opening["engine"]), opening["options"])
