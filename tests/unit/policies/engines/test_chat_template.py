"""lpfloop refuses a chat template that fails to render, or omits a message."""

import json
from contextlib import nullcontext

import pytest

from lpfloop.configs.engines import EngineConfig
from lpfloop.policies import devices
from lpfloop.policies.engines.chat_template import folds_system, require_chat
from lpfloop.policies.engines.engine import EngineError

HEAD = "{% for message in messages %}<|{{ message['role'] }}|>"
END = "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
SAID = "{{ message['content'] }}"
PLAIN = HEAD + SAID + END

USED = {
    "generation": HEAD + "{% generation %}" + SAID + "{% endgeneration %}" + END,
    "break": "{% for message in messages %}{% if loop.index > 99 %}{% break %}{% endif %}"
    + PLAIN.removeprefix("{% for message in messages %}"),
    "no tools": "{% if tools is not none or documents is not none %}{{ tools[0] }}{% endif %}"
    + PLAIN,
    "date": "{{ strftime_now('%d %b %Y') + ' ' }}{{ date_string or 'x' }}" + PLAIN,
    "special token": "{{ bos_token + '!' }}{{ image_token + '!' }}" + PLAIN,
    "json": "{{ messages | tojson(indent=2, ensure_ascii=False, sort_keys=True) }}",
    "namespace": "{% set ns = namespace(n=0) %}{% set ns.n = 1 %}" + PLAIN,
    "parts or texts": HEAD
    + "{% if message['content'] is string %}{{ message['content'] }}"
    + "{% else %}{{ message['content'][0]['text'] }}{% endif %}"
    + END,
    "one question": "{% if messages | length > 2 %}{{ raise_exception('only one') }}{% endif %}"
    + PLAIN,
    "trimmed": HEAD + "{{ message['content'] | trim }}" + END,
}
WITHOUT_SYSTEM = {
    "refused": "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}"
    + PLAIN,
    "dropped": HEAD + "{% if message['role'] != 'system' %}" + SAID + "{% endif %}" + END,
}
REFUSED = {
    "unknown tag": ("{% thought %}x{% endthought %}", "line 1"),
    "unclosed": ("{% for message in messages %}\n{{ message['content'] }}", "line"),
    "needs a system turn": (
        "{% if messages[0]['role'] != 'system' %}{{ raise_exception('give a system turn') }}"
        "{% endif %}" + PLAIN,
        "give a system turn",
    ),
    "needs tools": ("{{ tools | length }}" + PLAIN, "NoneType"),
    "not passed": ("{{ project.name }}" + PLAIN, "project"),
    "any error": ("{{ 1 // 0 }}" + PLAIN, "ZeroDivisionError"),
    "unsafe": ("{{ messages.__class__.__mro__[1].__subclasses__() }}" + PLAIN, "SecurityError"),
    "parts": (
        HEAD + "{% for c in message['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}"
        "{% endif %}{% endfor %}" + END,
        "parts",
    ),
    "first part": (HEAD + "{{ message['content'][0]['text'] }}" + END, "parts"),
    "parts or error": (
        HEAD + "{% for c in message['content'] %}{{ c['text'] + '' }}{% endfor %}" + END,
        "parts",
    ),
    "first line": (HEAD + "{{ message['content'].split('\n')[0] }}" + END, "user's text"),
    "after a system turn": (
        "{% set rest = messages %}{% if messages[0]['role'] == 'system' %}"
        "{{ messages[0]['content'] }}{% set rest = messages[2:] %}{% endif %}"
        + PLAIN.replace("in messages", "in rest"),
        "system, user",
    ),
    "last turn alone": ("{{ messages[-1]['content'] }}", "user, assistant"),
    "first turn alone": (
        "{{ messages[0]['content'] }}{{ messages[-1]['content'] }}",
        "user, assistant",
    ),
    "last three turns": (PLAIN.replace("in messages", "in messages[-3:]"), "turn 1"),
    "questions alone": (
        HEAD + "{% if message['role'] != 'assistant' %}" + SAID + "{% endif %}" + END,
        "assistant's text",
    ),
    "empty": (" ", "user's text"),
}


@pytest.fixture
def model(tmp_path):
    """Return a model folder with a chat template and a tokenizer only."""

    def made(template, **settings):
        told = {"bos_token": {"content": "<s>"}, "extra_special_tokens": {"image_token": "<i>"}}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(told | settings))
        (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    return made


def test_used_templates(model, subtests):
    for name, template in (USED | WITHOUT_SYSTEM).items():
        with subtests.test(name):
            folder = model(template)
            require_chat(folder, EngineConfig())
            assert folds_system(folder, EngineConfig()) is (name in WITHOUT_SYSTEM)


def test_refused_templates(model, subtests):
    for name, (template, told) in REFUSED.items():
        with subtests.test(name):
            folder = model(template)
            with pytest.raises(EngineError) as raised:
                require_chat(folder, EngineConfig())
            sentence = str(raised.value)
            assert told in sentence
            assert str(folder) in sentence
            assert "engine.template" in sentence
            assert "\n" not in sentence


def test_named_template_is_the_one_checked(model, tmp_path):
    folder = model(REFUSED["parts"][0])
    plain = tmp_path / "plain.jinja"
    plain.write_text(PLAIN)
    require_chat(folder, EngineConfig(template=str(plain)))
    plain.write_text(REFUSED["unknown tag"][0])
    with pytest.raises(EngineError, match=r"engine\.template=.*plain\.jinja: line 1"):
        require_chat(folder, EngineConfig(template=str(plain)))


def test_special_tokens_that_files_do_not_name(model):
    """A tokenizer's class may define special tokens; a generic class defines none."""
    template = "{{ bos_token + '!' }}" + PLAIN
    folder = model(template)
    for kind, refused in (("GPT2Tokenizer", False), ("TokenizersBackend", True)):
        settings = {"tokenizer_class": kind}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(EngineError, match="bos_token") if refused else nullcontext():
            require_chat(folder, EngineConfig())


def test_templates_in_the_tokenizers_settings(model, subtests):
    named = [{"name": "tool_use", "template": " "}, {"name": "default", "template": PLAIN}]
    for found in (PLAIN, named):
        with subtests.test(found):
            folder = model("", chat_template=found)
            (folder / "chat_template.jinja").unlink()
            require_chat(folder, EngineConfig())


def test_values_for_the_template(model):
    folder = model("{% if enable_thinking %}<think>{% endif %}" + USED["generation"])
    require_chat(folder, EngineConfig(chat_template_kwargs={"enable_thinking": True}))
    with pytest.raises(EngineError, match=r"does not use thinking; it reads enable_thinking$"):
        require_chat(folder, EngineConfig(chat_template_kwargs={"thinking": True}))


def test_unreadable_files(model, subtests):
    folder = model(PLAIN)
    for name, content in (
        ("chat_template.jinja", b"\xff\xfe"),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
    ):
        with subtests.test(name, content=content):
            model(PLAIN)
            (folder / name).write_bytes(content)
            with pytest.raises(EngineError, match=name):
                require_chat(folder, EngineConfig())


def test_nothing_is_rendered_without_transformers(model, monkeypatch):
    monkeypatch.setattr(devices, "installed_version", lambda _: None)
    folder = model(REFUSED["parts"][0])
    require_chat(folder, EngineConfig())
    assert not folds_system(folder, EngineConfig())
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(EngineError, match=r"engine\.template=alpaca"):
        require_chat(folder, EngineConfig())
