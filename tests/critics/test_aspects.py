from pathlib import Path

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.aspects import load_aspects, render_aspects

EIGHT = [
    "Logical Correctness",
    "Factuality",
    "Metacognition",
    "Insightfulness",
    "Completeness",
    "Comprehension",
    "Readability",
    "Harmlessness",
]


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_the_shipped_files_hold_the_eight_aspects_of_table_7(name):
    aspects = load_aspects(name)
    assert [aspect.name for aspect in aspects] == EIGHT
    assert len({a.texts[2:] for a in aspects}) == len(aspects)


def test_several_aspects_are_numbered_and_one_is_not():
    aspects = load_aspects("paper")
    assert render_aspects(aspects).startswith("1. Skill: Logical Correctness\nCriteria: ")
    assert "\n\n8. Skill: Harmlessness\n" in render_aspects(aspects)
    assert render_aspects(aspects[:1]).startswith("Skill: Logical Correctness\n")


def test_a_file_may_replace_one_level_and_add_an_aspect(tmp_path):
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
    assert [*aspects] == [*EIGHT, "Brevity"]
    assert aspects["Readability"].levels.moderate == "Passable."
    assert aspects["Readability"].levels.success == shipped["Readability"].levels.success
    assert aspects["Factuality"] == shipped["Factuality"]


WHOLE = "criteria: c, levels: {-1: a, 0: b, 1: c}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("aspects: []", "'aspects'"),
        ("[1, 2]", "mapping"),
        ("aspects: [3]", "aspect 1 must be a mapping"),
        ("aspects: [{name: A, criteria: c}]", "'levels'"),
        ("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b}}]", "levels.1"),
        ("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, 2: c}}]", "levels.1"),
        ("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, 1: c, 2: d}}]", "levels.2"),
        (
            "aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, true: c}}]",
            "line 1: the key True is not a string",
        ),
        ("aspects: [{name: A, levels: {-1: a, 0: b, 1: c}}]", "criteria"),
        (f"aspects: [{{name: 7, {WHOLE}}}]", "name"),
        (f"aspects: [{{name: 'A\"', {WHOLE}}}]", "name"),
        (f"aspects: [{{name: A, {WHOLE}}}, {{name: A, {WHOLE}}}]", "twice"),
        (f"aspects: [{{name: A, {WHOLE}, weight: 2}}]", "'weight'"),
        (f"extends: other\naspects: [{{name: A, {WHOLE}}}]", "'extends'"),
        ("aspects: [", "YAML"),
    ],
)
def test_a_faulty_file_is_refused_by_file_and_field(tmp_path, text, field):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_aspects(path)
    assert path in str(refused.value)
    assert field in str(refused.value)


def test_what_can_not_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="shipped are paper, tiny"):
        load_aspects(str(tmp_path / "none.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"aspects: \xe9")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_aspects(str(tmp_path / "latin.yaml"))
