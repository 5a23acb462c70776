"""`lpfloop doctor`: it lists the missing parts of a run, and writes nothing."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon import doctor
from lpfloop.loop.daemon.doctor import Diagnosis, Finding
from lpfloop.policies import devices

SCRIPTED = ("policy.engine.kind=scripted", "critic.engine.kind=scripted", "reward.model=none")


def diagnose(tmp_path, *settings) -> Diagnosis:
    return doctor.diagnose(load_config(None, None, settings, {}), tmp_path / "lake")


def about(diagnosis: Diagnosis, name: str) -> Finding:
    return next(finding for finding in diagnosis.findings if finding.about == name)


def test_dry_run_would_start(tmp_path) -> None:
    diagnosis = diagnose(tmp_path, *SCRIPTED)
    assert diagnosis.ok, diagnosis.as_text()
    first, *rest = diagnosis.as_text().splitlines()
    assert first == "`lpfloop run` would start"
    assert not any("MISSING" in line for line in rest)
    assert json.loads(diagnosis.as_json())["ok"] is True
    assert not (tmp_path / "lake").exists()


def test_missing_package(tmp_path, monkeypatch) -> None:
    there = devices.installed_version
    monkeypatch.setattr(devices, "installed_version", lambda n: None if n == "trl" else there(n))
    diagnosis = diagnose(tmp_path, *SCRIPTED)
    assert not diagnosis.ok
    assert about(diagnosis, "trl").remedy == "make setup"
    assert diagnose(tmp_path, *SCRIPTED, "iterations=0").ok


def test_configured_must_be_there(tmp_path, subtests):
    for setting, name in [
        ("policy.model=/nowhere", "policy model"),
        ("critic.model=/nowhere", "critic model"),
        ("reward.model=/nowhere", "reward model"),
        ("prompts.source=/nowhere.jsonl", "prompts"),
    ]:
        with subtests.test(case=name):
            diagnosis = diagnose(tmp_path, setting)
            assert about(diagnosis, name).status == "missing"
            assert "/nowhere" in about(diagnosis, name).detail
            assert not diagnosis.ok


def lines(count: int) -> str:
    rows = ({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count))
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Call a command about a run with the user's prompts and scripted models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(lines(20))
    models = [
        "policy.engine.kind=scripted",
        "policy.engine.script=scripts:policy",
        "critic.engine.kind=scripted",
        "smoke.train=false",
        "injection_guard=false",
        "critic.templates=tiny",
        "critic.aspects=tiny",
    ]
    words = ["--prompts", "mine.jsonl", *(word for item in models for word in ("--set", item))]

    def call(command: str, *more: str, critic: str = "scripts:critic"):
        judge = ["--set", f"critic.engine.script={critic}"]
        told = CliRunner().invoke(app, [command, *words, *judge, *more])
        return told.exit_code, told.stdout, " ".join(told.stderr.split())

    return call


def test_what_the_doctor_refuses(own, tmp_path, subtests):
    for words in [
        ("--prompts", "nowhere.jsonl"),
        ("--recipe", "dpo"),
        ("--set", "recipe.nn=2"),
    ]:
        with subtests.test(case=" ".join(words)):
            asked, said, told = own("doctor", *words)
            started, _, refused = own("run", *words)
            assert (asked != 0) is (started == 2), said + told + refused
            assert asked != 0, said
            assert not (tmp_path / "lake").exists()
