"""Principles are listed, and written by a model whose reply is read strictly."""

import json

import pytest
import yaml
from commands import call
from endpoints import answering
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.configs.schema import ConfigError, EngineConfig
from lpfloop.loop.data.principles import as_yaml, read_texts, shipped_texts
from lpfloop.loop.stages.write_principles import generate, listed, question
from lpfloop.policies.engines.engine import EngineError, Request, Sampling
from lpfloop.policies.engines.scripted_engine import Script, ScriptedEngine

KNOWN = shipped_texts("honesty")


def said(count: int, mark: str = ". ") -> str:
    return "\n".join(f"{n}{mark}Heed the rule number {n}." for n in range(1, count + 1))


def writer(request: Request, sampling: Sampling) -> str:
    """Write as many as are asked for."""
    asked = int(request.messages[0].content.rpartition("from 1 to ")[2].split()[0])
    return f"Here you are:\n\n{said(asked)}"


def stubborn(request: Request, sampling: Sampling) -> str:
    """Say what is there already."""
    return "\n".join(f"{n}. {text}" for n, text in enumerate(KNOWN, start=1))


def engine(script: Script) -> ScriptedEngine:
    made = ScriptedEngine(EngineConfig(kind="scripted"))
    made._script = script
    return made


def test_a_model_is_shown_what_there_is_and_told_how_many_to_write():
    text = question("honesty", KNOWN, 7)
    assert all(f"- {known}" in text for known in KNOWN)
    assert text.count("honesty") == 3
    assert "from 1 to 7" in text


@given(texts=st.lists(st.from_regex(r"[A-Z][a-z]{1,9} [a-z]{1,9}", fullmatch=True), unique=True))
def test_a_numbered_list_is_read_whole_and_in_order(texts):
    unique = list({" ".join(text.casefold().split()): text for text in texts}.values())
    for mark in (". ", ") ", ".\t"):
        reply = "\n\n".join(f" {n}{mark}{text}" for n, text in enumerate(unique, start=1))
        assert listed(f"Gladly!\n{reply}\n\nThat is all.", ()) == unique


@pytest.mark.parametrize("reply", ["1. One.\n3. Three.", "2. Two.\n1. One.", "0. Nil.\n1. One."])
def test_a_list_with_other_numbers_is_not_read(reply):
    with pytest.raises(ValueError, match=r"its item . has the number"):
        listed(reply, ())


def test_an_item_of_two_lines_is_not_cut_to_its_first():
    with pytest.raises(ValueError, match="its item 1 goes on in a second line"):
        listed("1. Be kind,\n   but be brief.\n2. Be true.", ())


def test_what_is_known_or_said_twice_does_not_count():
    assert listed("1. Be kind.\n2. Be  KIND\n3. be true\n4. Be brief.", ("Be true.",)) == [
        "Be kind.",
        "Be brief.",
    ]


def test_as_many_as_were_asked_for_are_given():
    found = generate(engine(writer), "honesty", KNOWN, 4, seed=0)
    assert found == [f"Heed the rule number {n}." for n in (1, 2, 3, 4)]


def test_one_principle_too_few_is_no_answer():
    with pytest.raises(EngineError, match="has 3 new ones of the 4 that were asked for"):
        generate(engine(lambda *_: said(3)), "honesty", KNOWN, 4, seed=0)


def test_a_reply_that_was_cut_off_is_no_answer():
    with pytest.raises(EngineError, match="the reply ended with length"):
        generate(engine(lambda *_: said(900)), "honesty", KNOWN, 4, seed=0)


def test_repeated_principles_are_too_few():
    with pytest.raises(EngineError, match="has 0 new ones of the 11"):
        generate(engine(stubborn), "honesty", KNOWN, 11, seed=0)


def test_a_written_file_is_read_again(tmp_path):
    texts = ["Be kind: always.", "- Dashes - too", "#no comment", "Ünïcode “quotes”", *KNOWN]
    path = tmp_path / "mine.yaml"
    path.write_text(as_yaml(texts), encoding="utf-8")
    assert list(read_texts(path)) == texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Be kind.", "must be a list of texts"),
        ("- Be kind: always", "must be a list of texts"),
        ("- ''", "must be a list of texts"),
        ("[]", "must be a list of texts"),
        ("- Be kind.\n- Be kind.", "the principle 'Be kind.' appears twice"),
    ],
)
def test_a_file_that_holds_no_principles_is_refused(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_texts(path)


def test_the_command_lists_the_shipped_and_writes_them_to_a_file(tmp_path):
    code, stdout, stderr = call(tmp_path, "config", "principles", "--json")
    assert code == 0, stderr
    found = json.loads(stdout)
    assert len(found) == 44
    assert found[0].keys() == {"aspect", "by", "principle"}
    out = tmp_path / "mine.yaml"
    code, stdout, stderr = call(
        tmp_path, "config", "principles", "--aspect", "honesty", "--output", out
    )
    assert code == 0, stderr
    assert yaml.safe_load(out.read_text(encoding="utf-8")) == list(KNOWN)


def test_a_served_model_writes_more_after_the_shipped(tmp_path):
    options = ("--aspect", "honesty", "--count", 3, "--output", "more.yaml", "--json")
    with answering(lambda _: said(3, ") ")) as url:
        code, stdout, stderr = call(
            tmp_path, "config", "principles", *options, "--writer", url, cwd=tmp_path
        )
    assert code == 0, stderr
    written = [row["principle"] for row in json.loads(stdout) if row["by"] == url]
    assert written == [f"Heed the rule number {n}." for n in (1, 2, 3)]
    assert list(read_texts(tmp_path / "more.yaml")) == [*KNOWN, *written]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--aspect", "wit"), "no principles of 'wit' are shipped; there are calibration"),
        (("--writer", "tiny"), "an aspect is needed, with --aspect"),
        (("--aspect", "honesty", "--count", 3), "need a model that writes, with --writer"),
        (("--aspect", "honesty", "--writer", "nowhere"), "nowhere: no such model folder"),
    ],
)
def test_what_can_not_be_done_is_said_in_a_sentence(tmp_path, arguments, message):
    code, stdout, stderr = call(tmp_path, "config", "principles", *arguments)
    assert code in (1, 2)
    assert message in stderr
    assert stdout == ""
    assert len(stderr.splitlines()) == 1
