"""A model's identity: its weights, tokenizer and template; not its path, never code or pickles."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import EngineError
from lpfloop.policies.workers import engine_factory as opening
from lpfloop.policies.workers.engine_factory import engine_kind
from lpfloop.policies.workers.identity import model_digest

AUTO = EngineConfig()


def only(name: str, *, config: bool = True) -> Callable[[Path], None]:
    """Return a function that replaces the weights by a file, and may delete the configuration."""

    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(b"{}")
        if not config:
            (folder / "config.json").unlink()

    return spoil


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"eos_token_id": 1}')
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def test_path_and_defaults_do_not_matter(folder: Path, tmp_path: Path) -> None:
    before = model_digest(str(folder), AUTO)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    (copy / "generation_config.json").write_text('{"temperature": 9, "eos_token_id": 1}')
    (copy / "README.md").write_text("about")
    (copy / "training_args.bin").write_bytes(b"left by a trainer")
    assert model_digest(str(copy), AUTO) == before


def test_a_named_template(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}")
    names = (None, "alpaca", str(own))
    digests = {model_digest(str(folder), EngineConfig(template=name)) for name in names}
    assert len(digests) == len(names)
    assert model_digest(str(folder), AUTO) in digests
    for name, sentence in (
        ("vicuna", "nor the name of a shipped template"),
        (str(folder), "neither a file"),
    ):
        with pytest.raises(EngineError, match=sentence):
            model_digest(str(folder), EngineConfig(template=name))


def test_what_decides_the_text_matters(folder: Path) -> None:
    digests = [model_digest(str(folder), AUTO)]
    for number, name in enumerate(
        (
            *("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"),
            "generation_config.json",
        )
    ):
        (folder / name).write_text(f'{{"eos_token_id": [1, {number}], "other": 1}}')
        digests.append(model_digest(str(folder), AUTO))
    assert len(set(digests)) == len(digests)


def test_invalid_model_folders(folder: Path, tmp_path: Path, subtests) -> None:
    for number, (spoil, sentence) in enumerate(NO_MODELS):
        spoiled = shutil.copytree(folder, tmp_path / f"{number}")
        spoil(spoiled)
        with (
            subtests.test(sentence),
            pytest.raises(EngineError, match=sentence) as caught,
        ):
            model_digest(str(spoiled), AUTO)
        assert "\n" not in str(caught.value)


NO_MODELS = [
    (shutil.rmtree, "no such model folder"),
    (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
    (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
    (lambda f: (f / "config.json").write_text('{"auto_map": {}}'), "auto_map"),
    (lambda f: (f / "model.safetensors").unlink(), r"\*\.safetensors is missing"),
    (only("pytorch_model.bin"), "pickled weights"),
    (only("model-00001-of-00002.safetensors"), "an incomplete model"),
    (only("model.gguf", config=False), "GGUF"),
]


def test_auto_uses_installed_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: set[str] = set()
    monkeypatch.setattr(opening, "find_spec", lambda name: name if name in installed else None)
    assert engine_kind("http://127.0.0.1:1/v1", AUTO) == "openai"
    with pytest.raises(EngineError, match="install"):
        engine_kind("folder", AUTO)
    installed.add("transformers")
    assert engine_kind("folder", AUTO) == "transformers"
    installed.add("vllm")
    assert engine_kind("folder", AUTO) == "vllm"
    assert engine_kind("folder", EngineConfig(kind="transformers")) == "transformers"
