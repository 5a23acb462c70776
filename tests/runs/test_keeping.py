"""Commands that keep a run whole: they name damage, repair it, redo lost units, explain garbage."""

import json

import pytest
from typer.testing import CliRunner
from world import copied, write_prompts

from lpfloop.loop.cli.app import Exit, app

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 12, max_test: 4, max_dev: 4, chunk: 5}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 3, m: 1}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A lake with one scripted run, `a`, on a few prompts."""
    folder = tmp_path_factory.mktemp("keeping")
    config = folder / "scripted.yaml"
    config.write_text(SCRIPTED)
    prompts = write_prompts(folder, 24)
    words = ("--config", config, "--prompts", prompts, "--run", "a", "--lake", folder / "lake")
    told = invoke("run", *words)
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    return folder / "lake"


@pytest.fixture
def lake(made, tmp_path):
    return copied(made, tmp_path / "lake")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def candidates(lake):
    """Return the files of candidates."""
    return sorted((lake / "runs/a/files/candidates").glob("*.parquet"))


def test_damage_reported_then_repaired(lake):
    options = ["--deep"]
    before = invoke("lake", "digest", "a", "--lake", lake).stdout
    whole = invoke("lake", "verify", "a", "--lake", lake, *options)
    assert whole.exit_code == 0, whole.stderr
    damaged = candidates(lake)[0]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    told = invoke("lake", "verify", "a", "--lake", lake, *options)
    assert told.exit_code == Exit.FAULT
    assert told.stdout.startswith("iteration ")
    assert damaged.name in told.stdout
    assert "lpfloop lake repair a" in told.stderr
    mended = invoke("lake", "repair", "a", "--lake", lake)
    assert mended.exit_code == 0, mended.stderr
    assert "1 units" in mended.stdout
    assert invoke("resume", "a", "--lake", lake).exit_code == Exit.NOTHING_TO_TRAIN_ON
    assert invoke("lake", "verify", "a", "--lake", lake, "--deep").exit_code == 0
    assert invoke("lake", "digest", "a", "--lake", lake).stdout == before


def test_garbage_is_listed_and_removed(lake):
    orphan = candidates(lake)[0].with_stem("0" * 64)
    orphan.write_bytes(b"x" * 1234)
    listed = invoke("lake", "gc", "a", "--lake", lake, "--dry-run")
    assert orphan.name in listed.stdout
    assert orphan.exists()
    assert "1,234" in invoke("lake", "gc", "a", "--lake", lake).stdout
    assert not orphan.exists()
    assert invoke("lake", "verify", "a", "--lake", lake, "--deep").exit_code == 0


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp\u200b[bold red]x[/bold red]\x9b31m"


def test_nothing_hostile_reaches_terminal(tmp_path):
    """Prompts with control characters, markup and bidirectional marks, through every command."""
    prompts = tmp_path / f"{HOSTILE.replace('/', '')}.jsonl"
    lines = [
        {"prompt_id": f"{HOSTILE}{n}", "task": HOSTILE, "prompt": HOSTILE, "reference": HOSTILE}
        for n in range(6)
    ]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    config = tmp_path / "scripted.yaml"
    config.write_text(SCRIPTED.replace('script: "scripts:policy"', "script: null"))
    where = ["--lake", tmp_path / "lake"]
    told = [invoke("run", "--config", config, "--prompts", prompts, "--run", "a", *where)]
    assert told[0].exit_code == Exit.NOTHING_TO_TRAIN_ON, told[0].stderr
    told.append(invoke("run", "--config", config, "--prompts", prompts, "--dry-run", *where))
    told.append(invoke("eval", "run", "a", "--prompts", prompts, *where))
    commands = ("status", "critiques", "pairs", "eval run", "watch", "lake verify")
    told += [invoke(*command.split(), "a", *where) for command in commands]
    told.append(invoke("show", f"{HOSTILE}1", *where))
    assert [one.exit_code for one in told[1:]] == [0] * (len(told) - 1)
    text = "".join(one.stdout + one.stderr for one in told)
    assert "owned" in text
    acting = {c for c in text if c < " " or "\x7f" <= c <= "\x9f" or c in "\u202e\u200b"}
    assert acting == {"\n"}
    assert "[bold red]" in text
