"""What the tests of all packages share."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import call
from families import make_family
from hypothesis import HealthCheck, settings
from preloaded import INTERPRETER, make_program
from s3 import environment, new_bucket, serving_s3
from servers import Endpoint, serving

from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.engines.scripted_engine import ScriptedEngine

ROOT = Path(__file__).parent.parent
TOGETHER = {
    "tests/test_docs.py": "tests/loop/test_real.py",
    "tests/loop/test_real_child.py": "tests/loop/test_real.py",
    "tests/loop/test_own_data.py": "tests/policies/test_engine_contract.py",
}
"""Files that use the real run, or the real server, of another file."""
ALONE = "test_a_thousand_random_kills"
"""Tests that share little with the others of their file: they fill up what time is left."""
WITH_TORCH = {
    *("test_losses.py", "test_next_token.py", "test_numerics.py", "test_quark_numerics.py"),
    *("test_reward_trainer.py", "test_group_numerics.py"),
}
"""Files whose tests all need models, and which import torch themselves."""
SPOILING = {"do_sample": True, "temperature": 0.01, "top_k": 1, "repetition_penalty": 3.0}


def pytest_configure() -> None:
    """Hear the signals that the tests send, also where whoever started them (nohup, &) does not.

    Reports after each iteration take seconds, and are written by the tests that are about them.
    However busy the machine is, an example of a property may take its time.
    """
    settings.register_profile(
        "patient",
        settings.default,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("patient")
    os.environ["LPFLOOP_REPORT__EACH_ITERATION"] = "false"
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no torch where no test is asked for that needs it: it takes longer than the others."""
    unwanted = "not model" in config.option.markexpr
    return True if unwanted and collection_path.name in WITH_TORCH else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let one of several processes run all tests that share something costly.

    Marks (`--dist loadgroup`) would say so, too, but pytest 9.2 and pytest-xdist 3.8 lose them.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Grouped(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return Grouped(config, log)


def group_of(nodeid: str) -> str:
    """Name what a test runs with: its file, or the file that makes what it shares."""
    path, _, test = nodeid.partition("::")
    return nodeid if test.startswith(ALONE) else TOGETHER.get(path, path)


@pytest.fixture(scope="session", autouse=True)
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let what this process starts be forked from one that has imported it: see `preloaded`.

    All processes of pytest-xdist share the servers, which end with the one that started them.
    """
    folder = tmp_path_factory.getbasetemp()
    distributed = "PYTEST_XDIST_WORKER" in os.environ
    sys.executable = str(
        make_program(folder.parent / "python", os.getppid())
        if distributed
        else make_program(folder / "python", os.getpid())
    )
    yield
    sys.executable = INTERPRETER


@pytest.fixture
def real_python(quick_python: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test starts be Python itself, whose process is the one that was started."""
    monkeypatch.setattr(sys, "executable", INTERPRETER)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root, which is the package's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Published data sets, which are not part of the repository."""
    folder = Path(os.environ.get("LPFLOOP_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data sets at {folder}; set LPFLOOP_SHARED_DATA")
    return folder


@pytest.fixture(scope="session")
def tiny_policy() -> Path:
    """The shipped policy M_0."""
    return ROOT / "loop" / "tiny" / "models" / "policy"


@pytest.fixture(scope="session")
def tiny_reward() -> Path:
    """The shipped reward model."""
    return ROOT / "loop" / "tiny" / "models" / "reward"


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the stand-in of a family of models by its name; it is made once, in seconds."""
    folder = tmp_path_factory.mktemp("families")

    def made(name: str) -> Path:
        if not (folder / name).is_dir():
            make_family(name, folder / name)
        return folder / name

    return made


@pytest.fixture(scope="session")
def real_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with `tiny-rlrf`: two real iterations on a small share of the tiny world.

    Its workers and trainers are started as everywhere but in tests: by the interpreter itself.
    """
    folder = tmp_path_factory.mktemp("real") / "lake"
    code, stdout, stderr = call(folder, "run", "--iterations", "2", python=INTERPRETER)
    assert code == 0, stderr
    assert "M_2" in stdout
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Request, Sampling]]:
    """Every request that a scripted model gets from now on, with how it was to be sampled."""
    requests: list[tuple[Request, Sampling]] = []
    answer = ScriptedEngine._complete

    def noting(self, request, sampling):
        requests.append((request, sampling))
        return answer(self, request, sampling)

    monkeypatch.setattr(ScriptedEngine, "_complete", noting)
    return requests


@pytest.fixture(scope="session")
def spoiled(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tiny policy with a generation_config.json that nobody may obey."""
    folder = tmp_path_factory.mktemp("spoiled") / "policy"
    shutil.copytree(tiny_policy, folder)
    ends = json.loads((folder / "config.json").read_text())["eos_token_id"]
    (folder / "generation_config.json").write_text(json.dumps({**SPOILING, "eos_token_id": ends}))
    return folder


@pytest.fixture(scope="session")
def endpoint(spoiled: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """vLLM's own server of the spoiled policy, on loopback, starting in the background."""
    with serving(spoiled, tmp_path_factory.mktemp("server") / "server.log") as started:
        yield started


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a real S3-speaking server on loopback."""
    with serving_s3() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an empty bucket, which the environment gives access to."""
    for name, value in environment(s3_server).items():
        monkeypatch.setenv(name, value)
    return new_bucket(s3_server)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Have torch use one thread: several divide a product otherwise, by the shape of a batch."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
