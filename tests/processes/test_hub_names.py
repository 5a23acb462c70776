"""Models and data sets by their names on the hub: from its cache, or fetched into it."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.run.models import TINY_MODELS, locate_model
from lpfloop.loop.run.served import fetch, hub_names, pin_hub_names
from lpfloop.stores import hub_cache

POLICY = TINY_MODELS / "policy"
TINY_FILES = {path.name: path.read_bytes() for path in POLICY.iterdir() if path.is_file()}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(cache: Path, kind: str, repo: str, files: Mapping[str, bytes]) -> Path:
    """Put a repository into a cache: blobs, and a snapshot of links; return the snapshot."""
    folder = cache / f"{kind}s--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for place, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        link = folder / "snapshots" / COMMIT / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return folder / "snapshots" / COMMIT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Path:
    """An empty cache of the hub."""
    environ["HF_HUB_CACHE"] = str(tmp_path / "hub")
    monkeypatch.setattr(hub_cache.cache_folder, "__defaults__", (environ,))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def config(*settings: str) -> RunConfig:
    return load_config("tiny", None, settings, {})


def test_name_keeps_its_commit(cache: Path) -> None:
    snapshot = cached(cache, "model", "own/policy", TINY_FILES)
    cached(cache, "dataset", "own/rows", {"train.jsonl": b'{"prompt": "x"}'})
    given = config(
        "policy.model=own/policy",
        "grading.model=own/policy@main",
        "critic.model=own/other",
        "prompts.source=hf:own/rows/train",
    )
    kept = pin_hub_names(given)
    assert locate_model("own/policy") == str(snapshot)
    assert kept.policy.model == kept.grading.model == f"own/policy@{COMMIT}"
    assert kept.prompts.source == f"hf:own/rows@{COMMIT}/train"
    assert kept.critic.model == "own/other"
    assert pin_hub_names(kept) == kept
    assert pin_hub_names(config()) == config()


def test_uncached_model_is_refused(cache: Path) -> None:
    cached(cache, "model", "own/policy", TINY_FILES)
    words = ["run", "--policy", "Qwen/Qwen3-0.6B", "--critic", "own/policy", "--prompts", "p.jsonl"]
    Path("p.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y"}\n')
    told = CliRunner().invoke(app, words)
    assert told.exit_code == Exit.BAD_INPUT
    assert "Qwen/Qwen3-0.6B" in told.stderr
    assert "--download" in told.stderr
    assert not Path("runs").exists()


# fetching


def test_fetched_without_code_and_pickles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[str, dict[str, Any]]]()
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda repo, **how: asked.append((repo, how))
    )
    names = hub_names(config("policy.model=own/policy", "prompts.source=hf:own/rows/main/train"))
    fetch(names)
    files = {
        "own/policy": [*TINY_FILES, "pytorch_model.bin", "modeling.py", "onnx/model.safetensors"],
        "own/rows": ["main/train-00000-of-00001.jsonl", "main/train.py", "main/test.jsonl"],
    }
    given = {
        repo: set(filter_repo_objects(files[repo], **{key: how[key] for key in PATTERNS}))
        for repo, how in asked
    }
    assert given == {
        "own/policy": {*TINY_FILES},
        "own/rows": {"main/train-00000-of-00001.jsonl"},
    }


PATTERNS = ("allow_patterns", "ignore_patterns")


def test_empty_hub_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise OSError("no route to hf_secret")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", away)
    with pytest.raises(ConfigError, match="own/none: cannot be fetched"):
        fetch(hub_names(config("policy.model=own/none")))
