"""The docs' commands run, in process, on one lake of scripted models."""

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import world
from typer.testing import CliRunner

from lpfloop.loop.cli.app import PANELS, CommandGroup, app
from lpfloop.loop.run import models
from lpfloop.loop.stages import publish
from lpfloop.policies.engines.engine import ScoreResult

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"in `([\w.]+)`:\n\n```(?:json|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTED = {
    "POLICY__ENGINE__KIND": "scripted",
    "POLICY__ENGINE__SCRIPT": "scripts:reflective_policy",
    "CRITIC__ENGINE__KIND": "scripted",
    "CRITIC__ENGINE__SCRIPT": "scripts:reflective_critic",
    "REWARD__MODEL": "tiny",
    "ASSESSMENT__KL": "false",
    "PROMPTS__PER_ITERATION": "60",
    "PROMPTS__MAX_TEST": "24",
    "PROMPTS__MAX_DEV": "24",
    "PROMPTS__CHUNK": "12",
    "TRAINING__MIN_PAIRS": "1",
}


FIRST = "lpfloop demo"
"""Makes the lake for all other commands."""


class LengthScorer:
    """A reward model that likes long answers."""

    def score(self, batches):
        for batch in batches:
            lengths = (float(len(one.messages[-1].content)) for one in batch.requests)
            yield ScoreResult(key=batch.key, answers=tuple(lengths))

    def close(self):
        pass


def shown(page):
    """Return the `lpfloop` commands of a page, each once, in order."""
    lines = [
        line.partition("#")[0].strip()
        for block in BLOCK.findall(page.read_text())
        for line in block.splitlines()
    ]
    found = dict.fromkeys(line for line in lines if line.startswith("lpfloop "))
    return [line for line in found if FIRST not in line]


def trained(job, **options):
    """Train with the fake, which reports one step."""
    step = {"step": 1.0, "loss": 0.5, "rewards/margins": 0.1}
    return replace(world.train(job, **options), history=(step,))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the guides' files, and a lake with `tiny-rlrf`."""
    folder = tmp_path_factory.mktemp("docs")
    for page in PAGES:
        for name, body in FILE.findall(page.read_text()):
            (folder / name).write_text(body)
    variables = {f"LPFLOOP_{name}": value for name, value in SCRIPTED.items()}
    lake = folder / "lake"
    lake.mkdir()
    with world.stand_ins(lake), pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "environ", {**os.environ, **variables, "LPFLOOP_LAKE": str(lake)})
        patch.setattr(publish, "train", trained)
        patch.setattr(models, "open_scorer", lambda *_, **__: LengthScorer())
        patch.chdir(folder)
        made = CliRunner().invoke(app, shlex.split(FIRST)[1:])
        assert made.exit_code == 0, made.output
        yield folder


def ended(command):
    """Run a command; one printed for a cluster has models that need devices."""
    with pytest.MonkeyPatch.context() as patch:
        if command.startswith("lpfloop launch"):
            real = {k: v for k, v in os.environ.items() if not k.endswith(("__KIND", "__SCRIPT"))}
            patch.setattr(os, "environ", real)
        return CliRunner().invoke(app, shlex.split(command)[1:])


@pytest.mark.parametrize("page", [p for p in PAGES if shown(p)], ids=lambda page: page.stem)
def test_commands(place, subtests, page):
    for command in shown(page):
        with subtests.test(case=command):
            done = ended(command)
            assert done.exit_code == 0, done.output[-1500:] + repr(done.exception)
            assert done.stdout or "alarms" in command


def test_every_command_is_documented():
    text = "\n".join(page.read_text() for page in PAGES)
    names = [
        name if word is None else f"{name} {word}"
        for commands in PANELS.values()
        for name, command in commands.items()
        for word in (command.commands if isinstance(command, CommandGroup) else [None])
    ]
    assert [name for name in names if not re.search(rf"(`|lpfloop ){name}\b", text)] == []
