"""One flipped bit anywhere in a run's rows: every reader says so, and none gives a wrong row.

A real run of scripted engines, with packs, loose parts and derived tables, beside one written by
hand that has what the other lacks.
"""

import os
import random
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from crashing import RUN, copied, loop, quick_folder, small_config, stand_ins, write_prompts
from told import told_run
from typer.testing import CliRunner

import lpfloop
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.library.read_only_run import ReadOnlyRun
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.sealed import MANIFEST, DamagedError

FEW, MANY = 36, 500
READS = 4
"""By how many ways, drawn at random, a lake is read after each flip."""
TOLD, KEPT, AGAIN = "told", "kept", "again"
NAMED = re.compile(r"/runs/[\w/.-]+\.(?:parquet|json)")
TABLES = (
    *("prompts", "candidates", "critiques", "rewards", "preferences", "grades", "prompt_reviews"),
    *("receipts", "pairs", "demonstrations", "yields", "checkpoints", "reward_models", "rollouts"),
    *("statistics", "evaluations", "scores"),
)
COMMANDS = (
    f"status {RUN} --json",
    f"critiques {RUN}",
    f"critiques {RUN} --rating 1 --limit 3 --json",
    f"failures {RUN} --by aspect",
    f"critiques {RUN} --format csv",
    f"candidates {RUN} --kind refinement",
    f"candidates {TOLD} --min-reward 0.3",
    f"pairs {RUN}",
    f"pairs {RUN} --derived {KEPT}",
    f"grades {RUN}",
    f"failures {RUN}",
    f"failures {TOLD}",
    f"diff {RUN}",
    f"diff {TOLD}",
    f"lake duplicates {RUN}",
    f"compare {RUN} {TOLD}",
    f"judge-check {TOLD} --json",
    f"lake derived {RUN}",
    f"lake digest {RUN}",
    f"show PROMPT --run {RUN} --json",
    f"show PAIR --run {RUN}",
    f"show CHECKPOINT --run {RUN}",
    f"show prompt-1 --run {TOLD}",
    f"lineage PROMPT --run {RUN}",
    f"lineage PAIR --run {RUN}",
    f"lineage CHECKPOINT --run {RUN}",
    "search okay",
    *(f"sql 'select * from {table} order by all'" for table in TABLES),  # noqa: S608 -- our own
    "sql 'select * from ratings order by all'",
    "sql 'select * from derived.\"kept.pairs\" order by all'",
    "sql 'select count(*), avg(score) from rewards'",
)
DERIVING = (
    f"rederive {RUN} --rule success_vs_failure --name other",
    f"rederive {RUN} --rule success_vs_failure --derived {AGAIN} --name other",
    f"lake reparse {RUN} --name other",
    f"export {RUN} pairs --as trl-dpo -o OUT",
    f"export {RUN} critiques --as parquet -o OUT",
    f"export {RUN} pairs --derived {KEPT} --as trl-dpo -o OUT",
    "lake reindex --full",
)
METHODS: dict[str, Callable[[ReadOnlyRun, str], object]] = {
    **{t: lambda run, _, t=t: getattr(run, t)().collect() for t in TABLES},
    "ratings": lambda run, _: run.ratings().sort("critique_id", "aspect").collect(),
    "pairs of one iteration": lambda run, _: run.pairs(1).collect(),
    "derived pairs": lambda run, _: run.pairs(derived=KEPT).collect(),
    "sql": lambda run, _: run.sql("select * from candidates order by all"),
    "show": lambda run, prompt: run.show(prompt),
    "show, as HTML": lambda run, prompt: run.show(prompt)._repr_html_(),
    "show, as rows": lambda run, prompt: run.show(prompt).rows,
    "lineage": lambda run, prompt: run.lineage(prompt),
    "diff, as HTML": lambda run, _: run.diff()._repr_html_(),
    "rows of a dataset": lambda run, _: run.critiques().to_hf().to_list(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of reading a lake."""

    name: str
    read: Callable[[Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """A lake, and what each way of reading it gives before anything is damaged."""

    lake: Path
    config: RunConfig
    ids: dict[str, str]
    answers: dict[Way, str]


class CommandFailedError(Exception):
    """A command that ended with an error, printed no row and said why."""


def printed(lake: Path, text: str) -> str:
    """Return what a command prints."""
    told = CliRunner().invoke(app, [*shlex.split(text), "--lake", str(lake)])
    if told.exit_code:
        assert isinstance(told.exception, SystemExit), (text, told.exception)
        assert told.stdout == "", text
        raise CommandFailedError(f"{told.exit_code} {told.stderr}")
    return told.stdout


def ways(ids: dict[str, str]) -> Iterator[Way]:
    for text in COMMANDS:
        asked = text
        for name, identity in ids.items():
            asked = asked.replace(name, identity)
        yield Way(name=text, read=lambda lake, asked=asked: printed(lake, asked))
    for name, method in METHODS.items():
        yield Way(name=name, read=lambda lake, method=method: called(lake, method, ids["PROMPT"]))


def called(lake: Path, method: Callable[[ReadOnlyRun, str], object], prompt: str) -> str:
    with lpfloop.open(RUN, lake=lake) as run:
        found = method(run, prompt)
        return str(found.rows(named=True) if hasattr(found, "height") else found)


def first(lake: Path, table: str, column: str) -> str:
    reader = RunReader(run_folder(lake, RUN))
    found = reader.scan(table).select(column).collect().item(-1, 0)
    reader.close()
    return str(found)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sound]:
    with quick_folder(tmp_path_factory.getbasetemp()) as folder, stand_ins(folder):
        config = small_config(write_prompts(folder, 24), "iterations=1", "prompts.per_iteration=16")
        lake = folder / "lake"
        loop(lake, config=config)
        told_run(lake, TOLD)
        printed(lake, f"rederive {RUN} --rule success_vs_failure --name {KEPT}")
        printed(lake, f"lake reparse {RUN} --name {AGAIN}")
        printed(lake, "lake reindex --full")
        ids = {
            "PROMPT": first(lake, "pairs", "prompt_id"),
            "PAIR": first(lake, "pairs", "pair_id"),
            "CHECKPOINT": first(lake, "checkpoints", "checkpoint_id"),
        }
        yield Sound(
            lake=lake, config=config, ids=ids, answers={way: way.read(lake) for way in ways(ids)}
        )


def files_of_rows(lake: Path) -> list[Path]:
    """Return every file that holds rows, packs and derived ones often, as they are large."""
    found = sorted(lake.glob("runs/*/parts/*/*.parquet"))
    packs = sorted(lake.glob("runs/*/packs/*/*.parquet"))
    derived = sorted(lake.glob("runs/*/derived/*/*"))
    assert packs
    assert derived
    return [*found, *(packs + derived) * max(1, len(found) // len(packs + derived))]


def flip(path: Path, draw: random.Random) -> Callable[[], int]:
    """Flip one bit of a file; return what mends it."""
    data = bytearray(path.read_bytes())
    sound = bytes(data)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return lambda: path.write_bytes(sound)


def outcome(way: Way, lake: Path, answer: str, damaged: Path) -> str:
    """Return what became of a read: "refused", "right" or what was wrong."""
    try:
        found = way.read(lake)
    except (CommandFailedError, DamagedError) as error:
        code = isinstance(error, DamagedError) or str(error).startswith("1 ")
        # A flipped manifest has another hash for a file beside it: that one is named.
        named = {place.name for place in map(Path, NAMED.findall(str(error)))}
        beside = {path.name for path in damaged.parent.iterdir()}
        told = named & (beside if damaged.name == MANIFEST else {damaged.name})
        remedy = re.search("`lpfloop (lake re|re)", str(error)) is not None
        return "refused" if code and told and remedy else f"not told well: {error}"
    return "right" if found == answer else "silently wrong"


def read_after_flips(sound: Sound, flips: int) -> list[str]:
    draw = random.Random(f"{flips} flips")
    files, every = files_of_rows(sound.lake), list(sound.answers)
    found = list[str]()
    for _ in range(flips):
        path = draw.choice(files)
        mend = flip(path, draw)
        for way in draw.sample(every, READS):
            became = outcome(way, sound.lake, sound.answers[way], path)
            found.append(became if became in ("refused", "right") else f"{way.name}: {became}")
        mend()
    return found


@pytest.mark.parametrize(
    "flips", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=lambda n: f"{n} flips"
)
def test_no_reader_gives_a_wrong_row_after_a_flipped_bit(sound, flips):
    found = read_after_flips(sound, flips)
    assert set(found) == {"refused", "right"}
    assert found.count("refused") > flips // 2


def test_every_way_that_reads_rows_refuses_them_if_all_are_damaged(sound, tmp_path):
    lake = copied(sound.lake, tmp_path / "lake")
    for path in {*files_of_rows(lake)}:
        flip(path, random.Random(path.name))
    found = dict[str, str]()
    for way, answer in sound.answers.items():
        try:
            found[way.name] = "the same" if way.read(lake) == answer else "silently wrong"
        except (CommandFailedError, DamagedError):
            found[way.name] = "refused"
    without = {way.name for way, answer in sound.answers.items() if answer in ("", "[]")}
    # The index holds the texts itself.
    assert {name for name in found if found[name] != "refused"} <= {"search okay"} | without
    assert set(found.values()) == {"refused", "the same"}


@pytest.mark.parametrize("text", DERIVING)
def test_nothing_is_made_of_damaged_rows(sound, tmp_path, text):
    lake = copied(sound.lake, tmp_path / "lake")
    asked = text.replace("OUT", str(tmp_path / "out"))
    rows = lake.glob(f"runs/{RUN}/*/*/*.parquet")
    for path in sorted(path for path in rows if path.parent.name not in ("prompts", "checkpoints")):
        flip(path, random.Random(path.name))
    before = set(lake.glob("runs/*/derived/*"))
    remedy = r"^1 error: .*was altered.*`lpfloop (lake repair|rede)"
    with pytest.raises(CommandFailedError, match=remedy):
        printed(lake, asked)
    assert set(lake.glob("runs/*/derived/*")) == before
    assert not (tmp_path / "out").exists()


def test_what_is_derived_is_hashed_even_if_a_bit_rots_behind_the_back_of_the_file_system(
    sound, tmp_path
):
    lake = copied(sound.lake, tmp_path / "lake")
    printed(lake, f"critiques {RUN}")
    path = next(lake.glob(f"runs/{RUN}/packs/critiques/*"))
    status = path.stat()
    flip(path, random.Random(0))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(CommandFailedError, match=path.name):
        printed(lake, f"rederive {RUN} --rule success_vs_failure --name other")


def test_a_finished_run_whose_rows_rot_says_so_when_it_is_resumed_each_time(sound, tmp_path):
    lake = copied(sound.lake, tmp_path / "lake")
    path = next(lake.glob(f"runs/{RUN}/packs/critiques/*"))
    mend = flip(path, random.Random(0))
    for _ in range(2):
        with (
            stand_ins(lake),
            pytest.raises(DamagedError, match=f"{path.name}.*`lpfloop lake repair {RUN}`"),
        ):
            loop(lake, config=sound.config)
    mend()
    with stand_ins(lake):
        loop(lake, config=sound.config)


def test_a_flipped_canary_is_named_by_a_deep_inspection_and_not_used(sound, tmp_path):
    lake = copied(sound.lake, tmp_path / "lake")
    path = next(lake.glob(f"runs/{RUN}/canaries/*/*"))
    mend = flip(path, random.Random(0))
    told = CliRunner().invoke(app, ["lake", "verify", RUN, "--deep", "--lake", str(lake)])
    assert told.exit_code == 1
    assert f"{path} was altered" in told.stdout
    longer = sound.config.model_copy(update={"iterations": 2})
    with stand_ins(lake), pytest.raises(DamagedError, match=path.name):
        loop(lake, config=longer)
    mend()
    with stand_ins(lake):
        loop(lake, config=longer)
