"""Principles from a list, or written by a model whose reply lpfloop reads strictly."""

import json

import pytest
import yaml
from http_server import answering
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.principles import read_texts, shipped_texts
from lpfloop.loop.stages.write_principles import listed

KNOWN = shipped_texts("honesty")


def call(*words):
    told = CliRunner().invoke(app, ["config", "principles", *map(str, words)])
    return told.exit_code, told.stdout, told.stderr


def said(count: int, mark: str = ". ") -> str:
    return "\n".join(f"{n}{mark}Heed the rule number {n}." for n in range(1, count + 1))


@given(texts=st.lists(st.from_regex(r"[A-Z][a-z]{1,9} [a-z]{1,9}", fullmatch=True), unique=True))
def test_list_read_whole(texts):
    unique = list({" ".join(text.casefold().split()): text for text in texts}.values())
    for mark in (". ", ") ", ".\t"):
        reply = "\n\n".join(f" {n}{mark}{text}" for n, text in enumerate(unique, start=1))
        assert listed(f"Gladly!\n{reply}\n\nThat is all.", ()) == unique


def test_file_without_principles(subtests, tmp_path):
    for text, message in [
        ("Be kind.", "must be a list of texts"),
        ("- Be kind.\n- Be kind.", "the principle 'Be kind.' appears twice"),
    ]:
        with subtests.test(case=text):
            path = tmp_path / "mine.yaml"
            path.write_text(text)
            with pytest.raises(ConfigError, match=message):
                read_texts(path)


def test_command_lists_and_writes(tmp_path):
    code, stdout, stderr = call("--json")
    assert code == 0, stderr
    assert len(json.loads(stdout)) == 44
    out = tmp_path / "mine.yaml"
    code, stdout, stderr = call("--aspect", "honesty", "--output", out)
    assert code == 0, stderr
    assert yaml.safe_load(out.read_text(encoding="utf-8")) == list(KNOWN)


def test_served_model_writes_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--aspect", "honesty", "--count", 3, "--output", "more.yaml", "--json")
    with answering(lambda _: said(3, ") ")) as url:
        code, stdout, stderr = call(*options, "--writer", url)
    assert code == 0, stderr
    written = [row["principle"] for row in json.loads(stdout) if row["by"] == url]
    assert written == [f"Heed the rule number {n}." for n in (1, 2, 3)]
    assert list(read_texts(tmp_path / "more.yaml")) == [*KNOWN, *written]


def test_command_refusals(subtests):
    for arguments, message in [
        (("--aspect", "wit"), "no principles of 'wit' are shipped; there are calibration"),
        (("--aspect", "honesty", "--count", 3), "need a model that writes, with --writer"),
        (("--aspect", "honesty", "--writer", "nowhere"), "nowhere: no such model folder"),
    ]:
        with subtests.test(case=arguments):
            code, stdout, stderr = call(*arguments)
            assert code in (1, 2)
            assert message in stderr
            assert stdout == ""
