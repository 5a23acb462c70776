"""What the tests of all packages share."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import call
from servers import Endpoint, serving

ROOT = Path(__file__).parent.parent
SPOILING = {"do_sample": True, "temperature": 0.01, "top_k": 1, "repetition_penalty": 3.0}


def pytest_configure() -> None:
    """Hear the signals that the tests send, also where whoever started them (nohup, &) does not."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests share something costly, so that one of several processes runs them all.

    A file's tests stay together, and so do those of a real run or a real server, wherever they are.
    """
    for item in items:
        names = getattr(item, "fixturenames", ())
        shared = next((name for name in ("real_lake", "endpoint") if name in names), None)
        alone = item.get_closest_marker("alone") is not None
        item.add_marker(pytest.mark.xdist_group(item.nodeid if alone else shared or item.path.stem))


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
def real_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with `tiny-rlrf`: two real iterations on a small share of the tiny world."""
    folder = tmp_path_factory.mktemp("real") / "lake"
    code, stdout, stderr = call(folder, "run", "--iterations", "2")
    assert code == 0, stderr
    assert "M_2" in stdout
    return folder


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
