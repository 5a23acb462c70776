"""Commands refuse a policy with a bad chat template before they write anything."""

import shutil

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app

PARTS = "{% for m in messages %}{% for c in m['content'] %}{{ c['text'] }}{% endfor %}{% endfor %}"
NEEDS_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ raise_exception('give a system turn') }}{% endif %}"
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
)
GENERATION = (
    "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}"
)
COMMANDS = (("run",), ("run", "--dry-run"), ("preview",), ("doctor",))


@pytest.fixture
def call(tmp_path, tiny_policy):
    """Call a command about a run of the tiny policy with another chat template."""

    def made(template, *words):
        folder = tmp_path / "policy"
        shutil.copytree(tiny_policy, folder, dirs_exist_ok=True)
        (folder / "chat_template.jinja").write_text(template)
        place = ("--policy", str(folder), "--lake", str(tmp_path / "lake"))
        told = CliRunner().invoke(app, [*words, "--config", "tiny", *place])
        assert told.exception is None or isinstance(told.exception, SystemExit)
        return told.exit_code, told.stdout + told.stderr

    return made


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_unusable_template_is_refused(call, tmp_path, subtests, words):
    for template, reason in ((PARTS, "user's text"), (NEEDS_SYSTEM, "give a system turn")):
        with subtests.test(reason):
            code, said = call(template, *words)
            assert code == (1 if words == ("doctor",) else 2)
            assert "chat template" in said
            assert reason in said
            assert not (tmp_path / "lake").exists()


def test_generation_tags_are_read(call):
    for words in (("run", "--dry-run"), ("doctor",)):
        code, said = call(GENERATION, *words)
        assert code == 0, said
