"""vLLM's real OpenAI-compatible server, on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ports import held_port

from lpfloop.policies.endpoint.endpoint import probe
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers.worker import worker_environment

KEY = "made-up-key"
START_S = 900
"""Half a minute is enough, unless the machine is busy."""


@dataclass(frozen=True)
class Endpoint:
    """A server that was started; it answers after `wait_until_served`."""

    url: str
    log: Path


@contextmanager
def serving(model: Path, log: Path) -> Generator[Endpoint]:
    """Start the server of `model` under the name `policy`; end it with all its processes."""
    flags = ["--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill"]
    names = ["--model", str(model), "--served-model-name", "policy"]
    with held_port() as port, log.open("wb") as output:
        address = ["--host", "127.0.0.1", "--port", str(port), "--api-key", KEY]
        server = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *names, *address, *flags],
            env=worker_environment(1),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield Endpoint(f"http://127.0.0.1:{port}/v1", log)
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def wait_until_served(endpoint: Endpoint) -> None:
    """Return when the server answers; fail the test if it never does."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            assert probe(endpoint.url, KEY) == "policy"
        except EngineError:
            time.sleep(0.5)
        else:
            return
    pytest.fail(f"the server did not start: {endpoint.log.read_text()[-2000:]}")
