"""Fixtures of all test folders, and rules that apply to every test.

- tests/unit starts no process, and each of its tests takes at most a second of processor time.
- Any other ordinary test takes at most 15 seconds of processor time, including its children.
- No test outside tests/models changes the environment of the pytest process: `getenv` in a thread
  of Polars, LanceDB or tokio may read an array that `setenv` has just freed, which is a SIGSEGV.
  Use the fixture `environ`, or give variables to a child process.
"""

import os

# The credentials of the S3 server that tests start. Arrow reads them from the process's
# environment, so they are there before any library starts a thread.
os.environ.update(
    {
        "AWS_ACCESS_KEY_ID": "made-up-id",
        "AWS_SECRET_ACCESS_KEY": "made-up-secret-key",
        "AWS_REGION": "us-east-1",
    }
)

import contextlib
import json
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import _pytest.runner
import polars as pl  # noqa: F401 -- its first import changes the environment
import pytest
import transformers.utils.chat_template_utils  # noqa: F401 -- it takes most of a unit test's second
import typer._adapters
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from models import make_family
from preloaded import INTERPRETER, make_program
from processes import Endpoint, call_command, serving
from s3 import new_bucket, serving_s3

from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.policies.trainers.train_model import train

ROOT = Path(__file__).parent.parent
SPOILING = {"do_sample": True, "temperature": 0.01, "top_k": 1, "repetition_penalty": 3.0}
UNIT_S = 1.0
ORDINARY_S = 15.0
# A processor second on a busy machine does about half the work of one on an idle machine.
TOLERANCE = 2.0
STARTS_A_PROCESS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec")
CHANGES_ENVIRONMENT = ("os.putenv", "os.unsetenv")

_forbidden: dict[str, str] = {}
"""Audit events forbidden to the current test, each with an alternative."""


def pytest_configure() -> None:
    """Set up signals, property tests, and the audit hook that enforces the rules."""
    for name, examples in (("ordinary", 25), ("thorough", 100)):
        settings.register_profile(
            name,
            settings.default,
            max_examples=examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))
    # A shell that starts pytest in the background (nohup, &) leaves these ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # pytest calls setenv with the test's name in each phase, while other threads run.
    _pytest.runner._update_current_test_var = lambda item, when: None
    # Typer also calls setenv, for each option of a command, to disable Pydantic's plugins.
    typer._adapters.disabled_pydantic_plugins = contextlib.nullcontext
    platform.platform()  # openai calls it, and the first call starts `uname`
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[object, ...]) -> None:
    if _forbidden and event in _forbidden:
        pytest.fail(f"{event}: {_forbidden[event]}")


def _folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(ROOT / "tests").parts[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Enforce the rules of a test's folder."""
    folder = _folder_of(item)
    if folder != "models":
        _forbidden.update(dict.fromkeys(CHANGES_ENVIRONMENT, "use the fixture `environ`"))
    if folder == "unit":
        _forbidden.update(dict.fromkeys(STARTS_A_PROCESS, "not in tests/unit"))
    try:
        return (yield)
    finally:
        _forbidden.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that takes too much processor time."""
    before = sum(os.times()[:4])
    result = yield
    seconds = sum(os.times()[:4]) - before
    allowed = UNIT_S if _folder_of(item) == "unit" else ORDINARY_S
    ordinary = not {"slow", "stress"} & {mark.name for mark in item.iter_markers()}
    if ordinary and seconds > allowed * TOLERANCE:
        pytest.fail(f"took {seconds:.1f} s of processor time; {allowed:g} s are allowed here")
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Fail the last test of a file that does not undo its fake trainer."""
    result = yield
    publish = sys.modules.get("lpfloop.loop.stages.publish")
    ends = nextitem is None or nextitem.path != item.path
    if publish is not None and ends and publish.train is not train:
        publish.train = train
        pytest.fail("a test of this file has left a stand-in for publish.train")
    return result


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """`os.environ` as a plain dict: Python code sees changes, C libraries do not.

    A child process sees them if a test starts it with `env=os.environ`.
    """
    changed = dict(os.environ)
    monkeypatch.setattr(os, "environ", changed)
    return changed


@pytest.fixture(scope="session", autouse=True)
def hypothesis_caches() -> None:
    """Fill the caches that Hypothesis lacks in a fresh checkout: characters, the code's constants.

    Otherwise the first property test takes over a second of processor time.
    """

    @given(st.text())
    def fill(_: str) -> None: ...

    fill()


@pytest.fixture(scope="session", autouse=True)
def quick_python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Start Python processes as forks of a server that has imported lpfloop: see `preloaded`.

    All processes of pytest-xdist share the servers, which end with the process that started them.
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
    """Start child processes with the real interpreter, not with the program of `preloaded`."""
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


@pytest.fixture
def shared_rows(shared_data: Path) -> Callable[[str], list[dict[str, Any]]]:
    """Read the rows of a published data set, by the name of its file."""

    def read(name: str) -> list[dict[str, Any]]:
        path = shared_data / name
        if not path.is_file():
            pytest.skip(f"{path} is absent; LPFLOOP_SHARED_DATA may name its folder")
        if path.suffix == ".json":
            return json.loads(path.read_text(encoding="utf-8"))
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

    return read


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
    """Return a function that makes a small model of a family, once, in seconds."""
    folder = tmp_path_factory.mktemp("families")

    def made(name: str) -> Path:
        if not (folder / name).is_dir():
            make_family(name, folder / name)
        return folder / name

    return made


@pytest.fixture(scope="session")
def real_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with `tiny-rlrf`: two real iterations on a small share of the tiny world.

    The real interpreter starts its workers and trainers, as it does outside of tests.
    """
    folder = tmp_path_factory.mktemp("real") / "lake"
    code, stdout, stderr = call_command(folder, "demo", python=INTERPRETER)
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
    """A copy of the tiny policy with a generation_config.json that every engine must ignore."""
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
def bucket(s3_server: str, environ: dict[str, str]) -> str:
    """The name of an empty bucket, which the environment gives access to."""
    environ["AWS_ENDPOINT_URL"] = s3_server
    return new_bucket(s3_server)


@pytest.fixture(autouse=True)
def on_card(request: pytest.FixtureRequest) -> Iterator[None]:
    """Put the tensors of a test marked `cuda` on the GPU, if any."""
    if request.node.get_closest_marker("cuda") is None:
        yield
        return
    import torch

    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    yield
    torch.set_default_device(None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Have torch use one thread: several split a product differently, depending on its shape."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
