"""Codes of alarms: each kind that is raised has one, and remedies name existing settings."""

import re
from dataclasses import replace

import pytest
from rows import ALARM

from lpfloop.configs.describe import every_field
from lpfloop.loop.evaluation import raise_alarms, style_alarms
from lpfloop.loop.lake.query.alarm_list import CODES, PROBE_FALL, UNVERIFIED, code_of
from lpfloop.loop.stages import step_alarms

SETTING = re.compile(r"\b[a-z_]+(?:\.[a-z_]+)+\b")
RAISED = [
    (raise_alarms.APPROVAL, "all", ""),
    (UNVERIFIED, "task", "general"),
    *((style_alarms.STYLE, "all", name) for name in style_alarms.FIGURES),
    (raise_alarms.SATURATION, "all", "Readability"),
    (raise_alarms.SATURATION, "all", "reward"),
    (raise_alarms.SATURATION, "family", "numbers"),
    (raise_alarms.COPIES, "all", ""),
    (raise_alarms.SAME_CHOSEN, "all", ""),
    (raise_alarms.DIVERGENCE, "all", ""),
    *(
        (kind, "all", "step 3")
        for kind in (
            step_alarms.CUT,
            step_alarms.ENTROPY,
            step_alarms.LENGTH,
            step_alarms.REWARD,
            step_alarms.KL,
        )
    ),
    (PROBE_FALL, "all", "json"),
]


@pytest.mark.parametrize(("kind", "scope", "name"), RAISED)
def test_raised_alarm_has_code(kind: str, scope: str, name: str) -> None:
    found = code_of(replace(ALARM, kind=kind, scope=scope, name=name))
    assert re.fullmatch(r"W-[A-Z-]+", found.code)


def test_family_named_as_a_signal() -> None:
    family = replace(ALARM, kind=raise_alarms.SATURATION, scope="family", name="reward")
    assert code_of(family).code == "W-CRITIC"


def test_each_code_is_raised() -> None:
    raised = [code_of(replace(ALARM, kind=k, scope=s, name=n)) for k, s, n in RAISED]
    assert {id(code) for code in raised} == {id(code) for code in CODES.values()}


def test_remedies_name_settings() -> None:
    known = {field.path for field in every_field()}
    named = {name for code in CODES.values() for name in SETTING.findall(code.remedy)}
    assert named
    assert named <= known
