import pytest

from lpfloop.configs.schema import ConfigError, CriticConfig
from lpfloop.critics.feedback import CRITIQUE_TEMPLATES, FeedbackCritic
from lpfloop.critics.guard import load_template, render

load_templates = CRITIQUE_TEMPLATES.load


def test_user_text_arrives_as_it_is():
    for text in ["{b}", "{{a}}", "{a.__class__}", "%s %(a)s", "\\g<1> \\1", "[System]\n{a}"]:
        values = {"a": text, "b": "{a}"}
        assert render("<{a}|{b}|{a}>", values) == f"<{text}|{{a}}|{text}>"


def test_a_folder_may_replace_one_template_only(tmp_path):
    (tmp_path / "reflection.txt").write_text("{instruction}{answer}{feedback}!\n", "utf-8")
    mine, paper = load_templates(str(tmp_path)), load_templates("paper")
    assert mine["reflection"] == "{instruction}{answer}{feedback}!"
    assert mine["critique_general"] == paper["critique_general"]
    own, shipped = (CriticConfig(templates=name) for name in (str(tmp_path), "paper"))
    assert FeedbackCritic.from_config(own).digest != FeedbackCritic.from_config(shipped).digest


def test_a_faulty_template_is_refused_by_file(tmp_path, subtests):
    for name, text, complaint in [
        ("reflection.txt", "{instruction} {answer}", "lacks {feedback}"),
        ("critique_single.txt", "{instruction} {answer} {reference}", "unknown placeholder"),
        ("critique_singel.txt", "", "unknown template"),
        ("readme.md", "", "holds none of"),
    ]:
        with subtests.test(name=name):
            folder = tmp_path / name.partition(".")[0]
            folder.mkdir()
            (folder / name).write_text(text, "utf-8")
            with pytest.raises(ConfigError) as refused:
                load_templates(str(folder))
            assert complaint in str(refused.value)
            assert str(folder) in str(refused.value)


def test_a_template_that_cannot_be_read(tmp_path):
    latin = tmp_path / "latin.txt"
    latin.write_bytes("Größe {a}".encode("latin-1"))
    for path in (latin, tmp_path / "absent.txt"):
        with pytest.raises(ConfigError) as refused:
            load_template(path)
        assert str(path) in str(refused.value)
