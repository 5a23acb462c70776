"""One flipped bit anywhere in a run's rows: every reader refuses it, and none gives a wrong row.

A real run of scripted engines with derived tables, and a handwritten run with the rest of the
tables.
"""

import os
import random
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lakes import told_run
from typer.testing import CliRunner
from world import RUN, copied, loop, quick_folder, small_config, stand_ins, write_prompts

import lpfloop
from lpfloop.loop.cli.app import app
from lpfloop.loop.library.read_only_run import ReadOnlyRun
from lpfloop.stores.sealed import MANIFEST, DamagedError

READS = 4
"""Number of ways, drawn at random, of reading a lake after each flip."""
TOLD, KEPT = "told", "kept"
NAMED = re.compile(r"/runs/[\w/.-]+\.(?:parquet|json)")
TABLES = (
    "prompts",
    "candidates",
    "critiques",
    "rewards",
    "pairs",
    "pairing_outcomes",
    "checkpoints",
)
COMMANDS = (
    f"status {RUN} --json",
    f"critiques {RUN} --format csv",
    f"candidates {TOLD} --min-reward 0.3",
    f"candidates {TOLD} --sort -reward --limit 5",
    f"pairs {RUN} --derived {KEPT}",
    f"diff {RUN}",
    f"compare {RUN} {TOLD}",
    f"lake digest {RUN}",
    f"show PROMPT {RUN} --json",
    "search okay",
    "sql 'select * from candidates order by all'",
    "sql 'select * from derived.\"kept.pairs\" order by all'",
)
DERIVING = (
    f"rebuild-pairs {RUN} --rule success_vs_failure --name other",
    f"export {RUN} pairs --as trl-dpo -o OUT",
)
METHODS: dict[str, Callable[[ReadOnlyRun, str], object]] = {
    **{t: lambda run, _, t=t: run.rows(t).collect() for t in TABLES},
    "derived pairs": lambda run, _: run.pairs(derived=KEPT).collect(),
    "show": lambda run, prompt: run.show(prompt),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """An undamaged lake, and the result of each way of reading it."""

    lake: Path
    prompt: str
    answers: dict[str, str]


class CommandFailedError(Exception):
    """A command that ended with an error message, without printing rows."""


def printed(lake: Path, text: str) -> str:
    """Return a command's output."""
    told = CliRunner().invoke(app, [*shlex.split(text), "--lake", str(lake)])
    if told.exit_code:
        assert isinstance(told.exception, SystemExit), (text, told.exception)
        assert told.stdout == "", text
        raise CommandFailedError(f"{told.exit_code} {told.stderr}")
    return told.stdout


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sound]:
    with (
        quick_folder(tmp_path_factory.getbasetemp()) as folder,
        stand_ins(folder),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(os, "environ", dict(os.environ))  # LanceDB's log varies.
        config = small_config(write_prompts(folder, 24), "iterations=1", "prompts.per_iteration=16")
        lake = folder / "lake"
        loop(lake, config=config)
        told_run(lake, TOLD)
        printed(lake, f"rebuild-pairs {RUN} --rule success_vs_failure --name {KEPT}")
        printed(lake, "search okay")
        with lpfloop.open(RUN, lake=lake) as run:
            prompt = run.pairs().collect()["prompt_id"][-1]
        answers = {way: read(lake, way, prompt) for way in (*COMMANDS, *METHODS)}
        yield Sound(lake=lake, prompt=prompt, answers=answers)


def files_of_rows(lake: Path) -> list[Path]:
    """Return every file of rows; derived ones repeatedly, as they are large."""
    found = sorted(lake.glob("runs/*/files/*/*.parquet"))
    derived = sorted(lake.glob("runs/*/derived/*/*"))
    assert derived
    return [*found, *derived * max(1, len(found) // len(derived))]


def flip(path: Path, draw: random.Random) -> Callable[[], int]:
    """Flip one bit of a file; return a function that repairs it."""
    data = bytearray(path.read_bytes())
    sound = bytes(data)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return lambda: path.write_bytes(sound)


def read(lake: Path, way: str, prompt: str) -> str:
    """Read a lake by a command, or by a method of the library."""
    if way not in METHODS:
        return printed(lake, way.replace("PROMPT", prompt))
    with lpfloop.open(RUN, lake=lake) as run:
        found = METHODS[way](run, prompt)
        return str(found.rows(named=True) if hasattr(found, "height") else found)


def outcome(sound: Sound, way: str, damaged: Path) -> str:
    """Return the outcome of a read: "refused", "right" or a description of the failure."""
    try:
        found = read(sound.lake, way, sound.prompt)
    except (CommandFailedError, DamagedError) as error:
        code = isinstance(error, DamagedError) or str(error).startswith("1 ")
        # A flipped manifest contains a wrong hash of another file in its folder; the error names
        # that one.
        named = {place.name for place in map(Path, NAMED.findall(str(error)))}
        beside = {path.name for path in damaged.parent.iterdir()}
        told = named & (beside if damaged.name == MANIFEST else {damaged.name})
        remedy = re.search("`lpfloop (lake re|re)", str(error)) is not None
        return "refused" if code and told and remedy else f"{way}: not told well: {error}"
    return "right" if found == sound.answers[way] else f"{way}: silently wrong"


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.stress)])
def test_flipped_bits(sound, flips):
    draw = random.Random(f"{flips} flips")
    files, every = files_of_rows(sound.lake), list(sound.answers)
    found = list[str]()
    for _ in range(flips):
        path = draw.choice(files)
        mend = flip(path, draw)
        found += [outcome(sound, way, path) for way in draw.sample(every, READS)]
        mend()
    assert set(found) == {"refused", "right"}
    assert found.count("refused") > flips // 2


def test_nothing_made_of_damaged_rows(sound, tmp_path, subtests):
    lake = copied(sound.lake, tmp_path / "lake")
    rows = lake.glob(f"runs/{RUN}/*/*/*.parquet")
    for path in sorted(path for path in rows if path.parent.name not in ("prompts", "checkpoints")):
        flip(path, random.Random(path.name))
    before = set(lake.glob("runs/*/derived/*"))
    for text in DERIVING:
        asked = text.replace("OUT", str(tmp_path / "out"))
        with subtests.test(command=text), pytest.raises(CommandFailedError, match="altered"):
            printed(lake, asked)
    assert set(lake.glob("runs/*/derived/*")) == before
    assert not (tmp_path / "out").exists()
