"""Keeping a run whole by command: damage is named, repaired and paid again; garbage says why."""

import json

import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.stores.failpoints import FAILPOINTS

pytestmark = pytest.mark.crash

SCRIPTED = """
extends: tiny
policy: {engine: {kind: scripted, script: "scripts:policy"}}
critic: {engine: {kind: scripted, script: "scripts:critic"}}
reward: {model: none}
prompts: {per_iteration: 12, evaluated: 12, deciding: 12, chunk: 5}
training: {min_pairs: 100000}
recipe: {name: rlrf, n: 3, m: 1}
"""


@pytest.fixture
def lake(tmp_path):
    """A lake with one scripted run, `a`."""
    config = tmp_path / "scripted.yaml"
    config.write_text(SCRIPTED)
    told = invoke("run", "--config", config, "--run", "a", "--lake", tmp_path / "lake")
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    return tmp_path / "lake"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def candidates(lake):
    """Return the parts that hold candidates."""
    return sorted((lake / "runs/a/parts/candidates").glob("*.parquet"))


def test_a_run_has_a_digest_alone_on_stdout(lake):
    told = invoke("lake", "digest", "a", "--lake", lake)
    assert told.exit_code == 0
    assert told.stderr == ""
    assert len(told.stdout) == 65
    assert invoke("lake", "digest", "a", "--lake", lake).stdout == told.stdout


def alter(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "options"),
    [
        (lambda path: path.unlink(), []),
        (lambda path: path.write_bytes(b""), []),
        (alter, ["--deep"]),
    ],
    ids=["deleted", "emptied", "altered"],
)
def test_damage_is_named_repaired_and_paid_again(lake, damage, options):
    before = invoke("lake", "digest", "a", "--lake", lake).stdout
    whole = invoke("lake", "verify", "a", "--lake", lake, *options)
    assert whole.exit_code == 0, whole.stderr
    damaged = candidates(lake)[0]
    damage(damaged)
    told = invoke("lake", "verify", "a", "--lake", lake, *options)
    assert told.exit_code == Exit.FAULT
    assert told.stdout.startswith("iteration ")
    assert damaged.name in told.stdout
    assert f"`lpfloop lake repair a --lake {lake}`" in told.stderr
    mended = invoke("lake", "repair", "a", "--lake", lake)
    assert mended.exit_code == 0, mended.stderr
    assert "1 units are owed again" in mended.stdout
    assert invoke("resume", "a", "--lake", lake).exit_code == Exit.NOTHING_TO_TRAIN_ON
    assert invoke("lake", "verify", "a", "--lake", lake, "--deep").exit_code == 0
    assert invoke("lake", "digest", "a", "--lake", lake).stdout == before


def test_garbage_is_listed_with_its_reason_and_then_removed(lake):
    orphan = candidates(lake)[0].with_stem("0" * 64)
    orphan.write_bytes(b"x" * 1234)
    listed = invoke("lake", "gc", "a", "--lake", lake, "--dry-run")
    assert listed.exit_code == 0, listed.stderr
    assert orphan.name in listed.stdout
    assert "no unit refers to it" in listed.stdout
    assert orphan.exists()
    assert "1,234  bytes are gone" in invoke("lake", "gc", "a", "--lake", lake).stdout
    assert not orphan.exists()
    assert invoke("lake", "verify", "a", "--lake", lake, "--deep").exit_code == 0


def test_every_failpoint_is_listed():
    listed = json.loads(invoke("lake", "failpoints", "--json").stdout)
    assert [row["name"] for row in listed] == list(FAILPOINTS)
    assert all(row["description"] for row in listed)


@pytest.mark.parametrize(
    "command",
    ["lake digest", "lake verify", "lake repair", "lake gc", "pause", "stop", "watch"],
)
def test_a_run_that_is_not_there_is_named(lake, command):
    told = invoke(*command.split(), "unseen", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert "unseen" in told.stderr


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp\u200b[bold red]x[/bold red]\x9b31m"


def test_nothing_hostile_reaches_the_terminal(tmp_path):
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
    told.append(invoke("preview", "--config", config, "--prompts", prompts, *where))
    told.append(invoke("eval", "run", "a", "--prompts", prompts, *where))
    commands = ("status", "critiques", "pairs", "eval run", "watch", "lake verify")
    told += [invoke(*command.split(), "a", *where) for command in commands]
    told.append(invoke("show", f"{HOSTILE}1", *where))
    told.append(invoke("show", "\x1b[2J", *where))
    assert [one.exit_code for one in told[1:-1]] == [0] * (len(told) - 2)
    text = "".join(one.stdout + one.stderr for one in told)
    assert "owned" in text
    acting = {c for c in text if c < " " or "\x7f" <= c <= "\x9f" or c in "\u202e\u200b"}
    assert acting == {"\n"}
    assert "[bold red]" in text
