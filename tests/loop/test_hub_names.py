"""Models and data sets by their names on the hub: from its cache, or fetched into it."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import COMMIT, FakeHub, cached
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.run.hub_names import pinned
from lpfloop.loop.run.models import TINY_MODELS, located
from lpfloop.policies.workers.identity import folder_digest

POLICY = TINY_MODELS / "policy"
TINY_FILES = {path.name: path.read_bytes() for path in POLICY.iterdir() if path.is_file()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def config(*settings: str) -> RunConfig:
    return load_config("tiny", None, settings, {})


def test_a_model_of_the_cache_is_the_model_of_its_files(cache: Path) -> None:
    snapshot = cached(cache, "model", "own/policy", TINY_FILES)
    assert located("own/policy") == located("own/policy@main") == str(snapshot)
    assert located(f"own/policy@{COMMIT}") == str(snapshot)
    assert folder_digest(snapshot) == folder_digest(POLICY)


def test_a_name_keeps_the_commit_that_it_had(cache: Path) -> None:
    cached(cache, "model", "own/policy", TINY_FILES)
    cached(cache, "dataset", "own/rows", {"train.jsonl": b'{"prompt": "x"}'})
    given = config(
        "policy.model=own/policy",
        "grading.model=own/policy@main",
        "critic.model=own/other",
        "prompts.source=hf:own/rows/train",
    )
    kept = pinned(given)
    assert kept.policy.model == kept.grading.model == f"own/policy@{COMMIT}"
    assert kept.prompts.source == f"hf:own/rows@{COMMIT}/train"
    assert kept.critic.model == "own/other"
    assert pinned(kept) == kept
    assert pinned(config()) == config()


def test_a_folder_goes_before_the_hub(
    cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cached(cache, "model", "own/policy", TINY_FILES)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "policy").symlink_to(POLICY)
    with caplog.at_level(logging.WARNING):
        kept = pinned(config("policy.model=own/policy"))
    assert located(kept.policy.model) == "own/policy"
    assert "own/policy: taken to be the folder here" in caplog.text


def test_a_model_that_is_not_cached_is_refused_with_what_to_do(cache: Path) -> None:
    cached(cache, "model", "own/policy", TINY_FILES)
    words = ["run", "--policy", "Qwen/Qwen3-0.6B", "--critic", "own/policy", "--prompts", "p.jsonl"]
    Path("p.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y"}\n')
    told = CliRunner().invoke(app, words)
    assert told.exit_code == Exit.BAD_INPUT
    said = " ".join(told.stderr.split())
    assert "Qwen/Qwen3-0.6B: no such folder here, and no such model in the hub's cache" in said
    assert "it holds own/policy" in said
    assert "--download" in said
    assert not Path("runs").exists()


# fetching


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    server = FakeHub()
    yield server
    server.close()


FETCH = """
import json, sys
from lpfloop.configs.describe import resolved
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.run_request import RunOptions
for settings in json.loads(sys.argv[1]):
    try:
        made = RunOptions(config="tiny", download=True, settings=settings).resolved()
    except ConfigError as error:
        print(json.dumps({"refused": str(error)}))
    else:
        print(json.dumps(resolved(made)))
"""


def fetched(
    hub: FakeHub, *runs: list[str], **env: str
) -> tuple["subprocess.CompletedProcess[str]", list[Any]]:
    """Read configurations as `lpfloop run --download` does; the hub's address is read once."""
    own = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_secret-token", **env}
    words = [sys.executable, "-c", FETCH, json.dumps(runs)]
    told = subprocess.run(
        words, env={**os.environ, **own}, capture_output=True, text=True, check=True
    )
    return told, [json.loads(line) for line in told.stdout.splitlines()]


def test_what_is_named_is_fetched_first_without_code_and_pickles(hub: FakeHub) -> None:
    others = {
        "pytorch_model.bin": b"no",
        "modeling.py": b"no",
        "consolidated.safetensors": b"no",
        "onnx/model.safetensors": b"no",
    }
    hub.repositories["models", "own/policy"] = TINY_FILES | others
    rows = {"main/train-00000-of-00001.jsonl": b'{"prompt": "x"}', "rows.py": b"no"}
    hub.repositories["datasets", "own/rows"] = {**rows, "main/test.jsonl": b""}
    wanted = ["policy.model=own/policy", "prompts.source=hf:own/rows/main/train"]
    told, (made,) = fetched(hub, wanted)
    assert made["policy"]["model"] == f"own/policy@{COMMIT}"
    assert made["prompts"]["source"] == f"hf:own/rows@{COMMIT}/main/train"
    assert folder_digest(Path(located("own/policy"))) == folder_digest(POLICY)
    assert set(hub.given) == {*TINY_FILES, "main/train-00000-of-00001.jsonl"}
    assert "fetching own/policy into" in told.stderr
    assert "hf_secret-token" not in told.stdout + told.stderr


def test_what_the_hub_does_not_give_is_one_sentence(hub: FakeHub) -> None:
    hub.repositories["models", "own/gated"] = None
    hub.repositories["models", "own/policy"] = TINY_FILES
    names = ("own/gated", "own/none", "own/policy@v9")
    _, told = fetched(hub, *([f"policy.model={name}"] for name in names))
    assert [said["refused"].partition(":")[0] for said in told] == list(names)
    gated, none, revision = (said["refused"] for said in told)
    assert "the hub gives it only to those who accepted its terms" in gated
    assert "the hub has no model of this name that you may read" in none
    assert "the hub has no revision v9" in revision


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "own/policy: HF_HUB_OFFLINE is set, and"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "own/policy: the hub cannot be reached, and"),
    ],
)
def test_without_the_hub_only_the_cache_helps(
    hub: FakeHub, cache: Path, env: dict[str, str], said: str
) -> None:
    _, (told,) = fetched(hub, ["policy.model=own/policy"], **env)
    assert told["refused"] == f"{said} {cache} does not hold all of it"
