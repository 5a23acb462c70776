"""A model is its weights, tokenizer and template: not its path, and never code or pickles."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import EngineError, Request, Sampling
from lpfloop.policies.engines.scripted_engine import echo, load_script
from lpfloop.policies.workers import open as opening
from lpfloop.policies.workers.identity import model_digest
from lpfloop.policies.workers.open import engine_kind
from lpfloop.stores.records import Message

AUTO = EngineConfig()


def only(name: str, *, config: bool = True) -> Callable[[Path], None]:
    """Return what leaves a file in the place of the weights, and of the configuration."""

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


def test_neither_path_nor_time_nor_sampling_defaults_matter(folder: Path, tmp_path: Path) -> None:
    before = model_digest(str(folder), AUTO)
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    (copy / "generation_config.json").write_text('{"temperature": 9, "eos_token_id": 1}')
    (copy / "README.md").write_text("about")
    (copy / "training_args.bin").write_bytes(b"left by a trainer")
    assert model_digest(str(copy), AUTO) == before


def test_copies_that_nothing_opens_are_no_part_of_a_model(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    before = model_digest(str(folder), AUTO)
    (folder / "original").mkdir()
    names = ("pytorch_model-00001-of-00002.bin", "consolidated.safetensors", "params.json")
    for name in (*names, "pytorch_model.bin.index.json", "original/consolidated.00.pth"):
        (folder / name).write_bytes(b"{}")
    assert model_digest(str(folder), AUTO) == before


def test_a_template_that_is_named_is_part_of_a_model(folder: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}")
    names = (None, "alpaca", str(own))
    digests = {model_digest(str(folder), EngineConfig(template=name)) for name in names}
    assert len(digests) == len(names)
    assert model_digest(str(folder), AUTO) in digests
    for name, sentence in (("vicuna", "nor a shipped template"), (str(folder), "no such file")):
        with pytest.raises(EngineError, match=sentence):
            model_digest(str(folder), EngineConfig(template=name))
    own.write_text("{% if %}")
    with pytest.raises(EngineError, match="line 1"):
        model_digest(str(folder), EngineConfig(template=str(own)))


def test_code_of_a_repository_is_not_asked_for_where_transformers_has_its_own(folder: Path) -> None:
    named = {"model_type": "llama", "auto_map": {"AutoModelForCausalLM": "modeling.Own"}}
    (folder / "config.json").write_text(json.dumps(named))
    assert model_digest(str(folder), AUTO)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
)
def test_what_decides_the_text_matters(folder: Path, name: str) -> None:
    before = model_digest(str(folder), AUTO)
    (folder / name).write_text('{"eos_token_id": 1, "other": 1}')
    assert model_digest(str(folder), AUTO) != before


def test_the_end_tokens_matter(folder: Path) -> None:
    before = model_digest(str(folder), AUTO)
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert model_digest(str(folder), AUTO) != before


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (shutil.rmtree, "no such model folder"),
        (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
        (lambda f: (f / "config.json").write_text('{"auto_map": {}}'), "auto_map"),
        (lambda f: (f / "model.safetensors").unlink(), r"\*\.safetensors is missing"),
        (only("pytorch_model.bin"), r"pickled weights \(pytorch_model.bin\).*save_pretrained"),
        (only("model-00001-of-00002.safetensors"), "an incomplete model"),
        (only("adapter_config.json", config=False), "an adapter alone"),
        (only("model.gguf", config=False), "GGUF"),
        (
            lambda f: (f / "adapter_model.safetensors").write_bytes(b""),
            "adapter_model.safetensors lies beside",
        ),
        (
            lambda f: (f / "config.json").write_text('{"auto_map": {}, "model_type": "chatglm"}'),
            r"no class for chatglm.*zai-org/glm-4-9b-chat-hf",
        ),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                json.dumps({"weight_map": {"a": "model-00002-of-00002.safetensors"}})
            ),
            "an incomplete model",
        ),
    ],
)
def test_what_is_no_model_is_one_sentence(folder: Path, spoil, sentence: str) -> None:
    spoil(folder)
    with pytest.raises(EngineError, match=sentence) as caught:
        model_digest(str(folder), AUTO)
    assert "\n" not in str(caught.value)


def test_an_endpoint_is_its_models_name() -> None:
    named = EngineConfig(model_name="m", base_urls=("http://127.0.0.1:1/v1",))
    other = EngineConfig(model_name="m", base_urls=("http://127.0.0.1:2/v1",))
    assert model_digest("http://127.0.0.1:1", named) == model_digest("http://127.0.0.1:2", other)
    with pytest.raises(EngineError, match="cannot be reached"):
        model_digest("http://127.0.0.1:9", AUTO)


def test_auto_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("path", ["nothing", "no.such:thing", "json:nothing", "json:__name__"])
def test_a_script_that_is_none(path: str) -> None:
    with pytest.raises(EngineError, match=r"engine\.script"):
        load_script(path)


def test_a_script_is_any_function_of_a_request() -> None:
    request = Request(request_id="r", messages=(Message(role="user", content="hi"),), seed=1234)
    warm = Sampling(temperature=1.0, top_p=1.0, max_tokens=9)
    assert load_script("lpfloop.policies.engines.scripted_engine:echo") is echo
    assert echo(request, warm) == "Indeed 234: hi"
