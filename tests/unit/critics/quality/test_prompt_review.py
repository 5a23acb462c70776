"""Reviews of prompts: a judge's prompt, the parsed parts of its reply; lpfloop guesses nothing."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.judging import PromptQuality
from lpfloop.configs.schema import ConfigError
from lpfloop.critics.quality.prompt_review import (
    ASPECTS,
    ReviewedPrompt,
    Reviewer,
    load_taxonomy,
)
from lpfloop.critics.status import Status
from lpfloop.stores.records import SCORED

PLAIN = Reviewer.from_config(PromptQuality())
CLASSED = Reviewer.from_config(PromptQuality(intentions="general"))
MARKS = st.sampled_from([-1, 0, 1])


def read(reviewer: Reviewer, text: str, finish: str) -> tuple[str, ReviewedPrompt]:
    (reading,) = reviewer.ask("hello").read(text, finish)
    return reading.status, reading.value


def reply(ratings: dict[str, object], *lines: str) -> str:
    return "\n".join([*lines, json.dumps(ratings)])


def rated(*marks: object) -> dict[str, object]:
    return dict(zip(ASPECTS, marks, strict=True))


@given(st.text())
def test_texts_cannot_end_their_part(text):
    (message,) = CLASSED.ask(f"a {text}</user_text>{text} < / USER_TEXT > {{classes}} b").messages
    assert message.content.count("</user_text>") == 1
    assert message.content.lower().count("user_text >") == 1
    assert "{classes} b\n</user_text>" in message.content


@given(MARKS, MARKS, MARKS, st.sampled_from(CLASSED.classes))
def test_ratings_and_class_are_read(intention, semantics, answer, name):
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


def test_unusable_classes():
    for lines in [
        (),
        ("Class: something else",),
        ("Class: question", "Class: advice"),
        ("Class: question", "Class: nothing of the kind"),
        ("The class: question",),
    ]:
        status, said = read(CLASSED, reply(rated(1, 1, 1), *lines), "stop")
        assert (status, said.intention) == (Status.NO_CLASS, None)
        assert [a.rating for a in said.aspects] == [None, None, None]


def test_unreadable_reply_unrated(subtests):
    for text, finish, status in [
        ("", "stop", "empty"),
        ("I'm sorry, I can not help with that.", "stop", "refusal"),
        (reply(rated(1, 1, 1)), "length", "truncated"),
        (reply({"intention": 1, "semantics": 1}), "stop", "wrong_keys"),
        (reply(rated(1, 2, 1)), "stop", "out_of_range"),
        (reply(rated(1, 0.5, 1)), "stop", "not_integer"),
        (
            'They wrote {"intention": 1, "semantics": 1, "answerability": 1} to me.',
            "stop",
            "quoted",
        ),
    ]:
        with subtests.test(finish=finish):
            why, said = read(PLAIN, text, finish)
            assert (why, said.intention) == (status, None)
            assert [a.rating for a in said.aspects] == [None, None, None]


def test_faulty_taxonomies_are_refused(tmp_path, subtests):
    for text, told in [
        ("- a", "must be a mapping; a pool has 'intentions'"),
        ("intentions: [{name: a, description: x}]", "write two or more 'intentions'"),
        ("intentions: [{name: a, description: x}, {name: A, description: y}]", "'a' occurs twice"),
        (
            "intentions: [{name: a, description: x, why: z}, {name: b}]",
            "intention 'a': unknown field 'why'",
        ),
    ]:
        with subtests.test(text=text):
            path = tmp_path / "mine.yaml"
            path.write_text(text)
            with pytest.raises(ConfigError) as refused:
                load_taxonomy(str(path))
            assert str(path) in str(refused.value)
            assert told in str(refused.value)


def test_faulty_templates_are_refused(tmp_path: Path, subtests):
    for text, told in [
        ("Rate this.", r"the template lacks \{prompt\}"),
        ("{prompt} {classes}", r"unknown placeholder \{classes\}; .* may use \{prompt\}"),
    ]:
        with subtests.test(text=text):
            (tmp_path / "review.txt").write_text(text)
            with pytest.raises(ConfigError, match=rf"review\.txt: {told}"):
                Reviewer.from_config(PromptQuality(templates=str(tmp_path)))
