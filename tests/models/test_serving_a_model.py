"""`lpfloop model --serve`: vLLM's server of a run's model, for clients and as a critic."""

import json
import os
import signal
import subprocess
import sys

import openai
import psutil
import pytest
from lakes import published_run
from processes import held_port, wait_until
from typer.testing import CliRunner

from lpfloop.configs.engines import EngineConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.policies.engines.vllm_engine import engine_arguments
from lpfloop.policies.workers.serve import flags

pytestmark = pytest.mark.model
KEY = "made-up-key"
LIMIT_S = 300


@pytest.fixture
def lake(tmp_path, tiny_policy):
    published_run(tmp_path / "lake", tiny_policy)
    return tmp_path / "lake"


@pytest.fixture
def port():
    with held_port() as port:
        yield port


def refused(lake, *options):
    done = CliRunner().invoke(app, ["model", "--serve", *options, "--lake", str(lake)])
    assert done.exit_code == Exit.BAD_INPUT, (done.stderr, done.exception)
    return " ".join(done.stderr.split())


def test_others_may_not_use_it_without_a_key(lake, environ):
    environ["LPFLOOP_API_KEY"] = ""
    said = refused(lake, "--host", "192.0.2.1")
    assert "set LPFLOOP_API_KEY to a key that clients must send" in said


def test_options_of_the_server(tiny_policy):
    """The server gets the arguments of the loop's engines, objects among them as JSON."""
    arguments = engine_arguments(str(tiny_policy), EngineConfig(), on_cpu=True)
    given = dict(flag.removeprefix("--").partition("=")[::2] for flag in flags(arguments))
    structured = json.loads(given["structured-outputs-config"])
    assert structured == arguments["structured_outputs_config"]
    assert {"enforce-eager", "no-enable-chunked-prefill"} <= given.keys()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_serves_and_ends_all_processes(lake, port, tmp_path, number, real_python):
    environment = {**os.environ, "LPFLOOP_API_KEY": KEY, "LPFLOOP_LAKE": str(lake)}
    lpfloop = [sys.executable, "-m", "lpfloop"]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*lpfloop, "model", "r", "M_1", "--serve", "--port", str(port)],
            env=environment,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: "serving r/M_1 at" in log.read_text() or server.poll() is not None)
        assert "clients must send LPFLOOP_API_KEY" in log.read_text()
        url = f"http://127.0.0.1:{port}/v1"
        client = openai.OpenAI(base_url=url, api_key=KEY)
        assert [model.id for model in client.models.list()] == ["r/M_1"]
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="other").chat.completions.create(
                model="r/M_1", messages=[{"role": "user", "content": "What is 7 + 5?"}]
            )
        below = psutil.Process(server.pid).children(recursive=True)
        assert len(below) > 1
        server.send_signal(number)
        assert server.wait(LIMIT_S) == (-9 if number == signal.SIGKILL else 0)
        wait_until(lambda: not any(p.is_running() and p.status() != "zombie" for p in below))
    finally:
        server.kill()
        server.wait()
