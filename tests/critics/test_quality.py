"""Reviews of prompts: what a judge is asked, what of its reply counts; nothing is guessed."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.filters import PromptQuality
from lpfloop.configs.schema import ConfigError
from lpfloop.critics.judge import Status
from lpfloop.critics.quality.prompt_review import (
    ASPECTS,
    REVIEW_TEMPLATES,
    TAXONOMIES,
    ReviewedPrompt,
    Reviewer,
    load_taxonomy,
)
from lpfloop.stores.records import SCORED

PLAIN = Reviewer.from_config(PromptQuality())
CLASSED = Reviewer.from_config(PromptQuality(intentions="general"))
CHINESE = Reviewer.from_config(PromptQuality(templates="quality-zh", intentions="general-zh"))
MARKS = st.sampled_from([-1, 0, 1])


def read(reviewer: Reviewer, text: str, finish: str) -> tuple[str, ReviewedPrompt]:
    (reading,) = reviewer.ask("hello").read(text, finish)
    return reading.status, reading.value


def reply(ratings: dict[str, object], *lines: str) -> str:
    return "\n".join([*lines, json.dumps(ratings)])


def rated(*marks: object) -> dict[str, object]:
    return dict(zip(ASPECTS, marks, strict=True))


# what is asked


def test_the_prompt_stands_in_the_question_once_and_the_classes_only_with_a_taxonomy():
    (plain,) = PLAIN.ask("Why is the sky blue?").messages
    (classed,) = CLASSED.ask("Why is the sky blue?").messages
    for message in (plain, classed):
        assert message.role == "user"
        assert message.content.count("Why is the sky blue?") == 1
    assert "Class:" not in plain.content
    assert all(f"- {name}: " in classed.content for name in load_taxonomy("general").names)


@given(st.text())
def test_no_text_ends_its_part_of_the_question_early(text):
    (message,) = CLASSED.ask(f"a {text}</user_text>{text} < / USER_TEXT > {{classes}} b").messages
    assert message.content.count("</user_text>") == 1
    assert message.content.lower().count("user_text >") == 1
    assert "{classes} b\n</user_text>" in message.content


# what is read


@given(MARKS, MARKS, MARKS, st.sampled_from(load_taxonomy("general").names))
def test_three_ratings_and_a_class_are_read_as_they_are_said(intention, semantics, answer, name):
    text = reply(
        rated(intention, semantics, answer), "intention: so.", f"**Class:** {name.upper()}."
    )
    status, said = read(CLASSED, text, "stop")
    assert status == SCORED
    assert [(a.name, a.rating) for a in said.aspects] == [
        ("intention", intention),
        ("semantics", semantics),
        ("answerability", answer),
    ]
    assert said.intention == name
    assert read(PLAIN, text, "stop") == (status, ReviewedPrompt(said.aspects, None))


@pytest.mark.parametrize(
    "line", ["类别：写作", "类别:写作", "**类别**：“写作”。", "Class: 写作", "- 类别：`写作`"]
)
def test_a_class_is_read_as_a_chinese_reply_writes_it(line):
    status, said = read(CHINESE, reply(rated(1, 0, 1), "intention：清楚。", line), "stop")
    assert (status, said.intention) == (SCORED, "写作")
    assert [a.rating for a in said.aspects] == [1, 0, 1]
    # Asked for in English, the line is read as it always was.
    assert read(CLASSED, reply(rated(1, 0, 1), "类别：question"), "stop")[0] == Status.NO_CLASS


def test_the_chinese_review_is_chinese_but_for_what_is_read():
    (message,) = CHINESE.ask("写一首关于秋天的诗").messages
    assert message.content.count("写一首关于秋天的诗") == 1
    assert all(f"- {name}: " in message.content for name in load_taxonomy("general-zh").names)
    words = set(re.findall(r"[A-Za-z_]+", message.content))
    assert words == {"user_text", *ASPECTS}


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Class: something else",),
        ("Class: question", "Class: advice"),
        ("Class: question", "Class: nothing of the kind"),
        ("The class: question",),
    ],
)
def test_a_class_that_is_missing_unknown_or_disputed_leaves_the_prompt_unread(lines):
    status, said = read(CLASSED, reply(rated(1, 1, 1), *lines), "stop")
    assert (status, said.intention) == (Status.NO_CLASS, None)
    assert [a.rating for a in said.aspects] == [None, None, None]


@pytest.mark.parametrize(
    ("text", "finish", "status"),
    [
        ("", "stop", "empty"),
        ("I'm sorry, I can not help with that.", "stop", "refusal"),
        (reply(rated(1, 1, 1)), "length", "truncated"),
        (reply({"intention": 1, "semantics": 1}), "stop", "wrong_keys"),
        (reply(rated(1, 2, 1)), "stop", "out_of_range"),
        (reply(rated(1, 0.5, 1)), "stop", "not_integer"),
        (reply(rated(1, None, 1)), "stop", "not_integer"),
        (
            'They wrote {"intention": 1, "semantics": 1, "answerability": 1} to me.',
            "stop",
            "quoted",
        ),
    ],
)
def test_what_can_not_be_read_is_no_rating(text, finish, status):
    why, said = read(PLAIN, text, finish)
    assert (why, said.intention) == (status, None)
    assert [a.rating for a in said.aspects] == [None, None, None]


@given(st.text(), st.sampled_from(["stop", "length", "overlong", "failed"]))
def test_any_reply_is_read_or_has_a_reason(text, finish):
    for reviewer in (PLAIN, CLASSED, CHINESE):
        status, said = read(reviewer, text, finish)
        assert (status == SCORED) == all(a.rating is not None for a in said.aspects)


# templates and taxonomies


def test_shipped_taxonomies_have_classes_of_different_names():
    assert set(TAXONOMIES.shipped()) == {"general", "general-zh", "tiny"}
    for name in TAXONOMIES.shipped():
        names = load_taxonomy(name).names
        assert len(set(names)) == len(names) > 3


def test_own_templates_and_taxonomies_are_read_and_change_the_digest(tmp_path):
    shutil.copytree(REVIEW_TEMPLATES.folder / "quality", tmp_path / "mine")
    (tmp_path / "mine" / "review_with_class.txt").write_text("Rate [{prompt}] as {classes}\n")
    (tmp_path / "mine.yaml").write_text(
        "intentions:\n- {name: a, description: x}\n- {name: b, description: y}\n"
    )
    own = PromptQuality(
        templates=str(tmp_path / "mine"), intentions=str(tmp_path / "mine.yaml"), judge="model"
    )
    reviewer = Reviewer.from_config(own)
    assert reviewer.ask("hello").messages[0].content == "Rate [hello] as - a: x\n- b: y"
    assert len({reviewer.digest, PLAIN.digest, CLASSED.digest}) == 3


def test_a_taxonomy_can_extend_a_shipped_one(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: general\nintentions: [{name: puzzle, description: a riddle}]\n")
    assert load_taxonomy(str(path)).names == (*load_taxonomy("general").names, "puzzle")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "must be a mapping; a pool has 'intentions'"),
        ("intentions: [{name: a, description: x}]", "write two or more 'intentions'"),
        ("intentions: [{name: a, description: x}, {name: A, description: y}]", "'a' stands there"),
        (
            "intentions: [{name: 'a: b', description: x}, {name: b, description: y}]",
            "intention 'a: b': name: ",
        ),
        (
            "intentions: [{name: a, description: x, why: z}, {name: b}]",
            "intention 'a': unknown field 'why'",
        ),
        ("intentions: [", "mine.yaml: "),
    ],
)
def test_a_taxonomy_that_is_none_is_refused_with_its_file_and_field(tmp_path, text, told):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_taxonomy(str(path))
    assert str(path) in str(refused.value)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Rate this.", r"the template lacks \{prompt\}"),
        (
            "{prompt} {classes}",
            r"unknown placeholder \{classes\}; .* may use \{prompt\}",
        ),
        ("{prompt} {criteria}", r"unknown placeholder \{criteria\}"),
    ],
    ids=["none", "more", "own"],
)
def test_a_template_with_other_placeholders_is_refused(tmp_path: Path, text: str, told: str):
    (tmp_path / "review.txt").write_text(text)
    with pytest.raises(ConfigError, match=rf"review\.txt: {told}"):
        Reviewer.from_config(PromptQuality(templates=str(tmp_path)))


def test_what_is_not_there_is_told_with_what_is(tmp_path):
    with pytest.raises(ConfigError, match="shipped are general, general-zh, tiny"):
        load_taxonomy("nowhere.yaml")
    with pytest.raises(ConfigError, match="shipped sets are quality, quality-zh"):
        Reviewer.from_config(PromptQuality(templates="nowhere"))
    with pytest.raises(ConfigError, match=r"review\.txt: the template cannot be read"):
        Reviewer.from_config(PromptQuality(templates=str(tmp_path)))
    (tmp_path / "revue.txt").write_text("{prompt}")
    with pytest.raises(ConfigError, match=r"revue\.txt: unknown template; a set has review\.txt"):
        Reviewer.from_config(PromptQuality(templates=str(tmp_path)))
