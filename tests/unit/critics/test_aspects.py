from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.feedback import load_aspects


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_shipped_aspects_are_table_7(subtests):
    for name in ["paper", "tiny"]:
        with subtests.test(name=name):
            aspects = load_aspects(name)
            assert [a.name for a in aspects] == [a.name for a in load_aspects("paper")]
            assert len(aspects) == 8
            assert {"Logical Correctness", "Harmlessness"} < {a.name for a in aspects}
            assert len({a.texts[2:] for a in aspects}) == len(aspects)


def test_a_file_may_replace_and_add(tmp_path):
    text = """
extends: paper
aspects:
  - name: Readability
    levels: {0: Passable.}
  - name: Brevity
    criteria: Is it short?
    levels: {-1: long, 0: middling, 1: short}
"""
    aspects = {a.name: a for a in load_aspects(written(tmp_path, text))}
    shipped = {a.name: a for a in load_aspects("paper")}
    assert [*aspects] == [*shipped, "Brevity"]
    assert aspects["Readability"].levels.moderate == "Passable."
    assert aspects["Readability"].levels.success == shipped["Readability"].levels.success
    assert aspects["Factuality"] == shipped["Factuality"]


WHOLE = "criteria: c, levels: {-1: a, 0: b, 1: c}"


def test_faulty_files_are_refused(tmp_path, subtests):
    for text, field in [
        ("aspects: []", "'aspects'"),
        ("[1, 2]", "mapping"),
        ("aspects: [{name: A, criteria: c}]", "'levels'"),
        ("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b}}]", "levels.1"),
        ("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, 2: c}}]", "levels.1"),
        (f"aspects: [{{name: 7, {WHOLE}}}]", "name"),
        (f"aspects: [{{name: A, {WHOLE}}}, {{name: A, {WHOLE}}}]", "twice"),
        (f"aspects: [{{name: A, {WHOLE}, weight: 2}}]", "'weight'"),
        (f"extends: other\naspects: [{{name: A, {WHOLE}}}]", "'extends'"),
        ("aspects: [", "YAML"),
    ]:
        with subtests.test(field=field):
            path = written(tmp_path, text)
            with pytest.raises(ConfigError) as refused:
                load_aspects(path)
            assert path in str(refused.value)
            assert field in str(refused.value)
