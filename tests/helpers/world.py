"""Runs of the loop on scripted models: configurations, prompts, children that tests kill.

Each attempt is a child of a clean fork server, so no live SQLite connection or thread is ever
copied. The policy, the critic and the trainer are deterministic fakes without a model; the loop,
the store and the disk are the real ones.
"""

import hashlib
import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import scripts
from rows import CHECKPOINT

import lpfloop.loop.daemon.loop
import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.control import SOCKET
from lpfloop.loop.daemon.iterations import iteration, order_prompts
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.recipes.roles import NeededRole, needed_roles
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.reporter import UnitStats
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.engines.canary import write_canary
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.trainers.job import TrainJob
from lpfloop.policies.trainers.train_model import TrainResult
from lpfloop.stores.digest import run_digest
from lpfloop.stores.failpoints import arm, record_names
from lpfloop.stores.inspection import damages
from lpfloop.stores.journal_file import check_journal
from lpfloop.stores.journal_reader import JOURNAL, Cost, Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.schemas import SCHEMAS
from lpfloop.stores.stage_files import read_committed

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- a disk without a disk; folders in it are unique
KILLED = -signal.SIGKILL
AT_ONCE = 2
HANGS_S = 300.0
"""Limit for a child, which takes a second, in a bucket ten or more."""
RUN = "a"
HEAVY = (
    "lpfloop.stores.inspection", "pyarrow.dataset", "pyarrow.parquet", "polars",
    "lpfloop.policies.endpoint.faults", "pytest",
)  # fmt: skip
"""Modules that the fork server imports once for all children."""

SMALL = (
    "policy.engine.kind=scripted", "policy.engine.script=world:policy",
    "critic.engine.kind=scripted", "critic.engine.script=world:critic", "reward.model=none",
    "prompts.held_out_share=0.25", "prompts.per_iteration=4", "prompts.max_test=2",
    "prompts.max_dev=2", "prompts.chunk=2", "recipe.n=2", "recipe.m=1", "recipe.top_k=1",
    "training.min_pairs=1", "iterations=2",
)  # fmt: skip

IDS = {
    "prompts": ("prompt_id",), "candidates": ("candidate_id",), "critiques": ("critique_id",),
    "rewards": ("candidate_id",), "preferences": ("preference_id",), "pairs": ("pair_id",),
    "demonstrations": ("demonstration_id",), "unpaired_answers": ("unpaired_id",),
    "pairing_outcomes": ("prompt_id", "iteration", "rule"),
    "checkpoints": ("checkpoint_id",), "grades": ("grade_id",),
    "prompt_reviews": ("prompt_id", "iteration"), "rollouts": ("candidate_id",),
    "statistics": ("iteration", "method", "step", "metric"),
    "evaluations": ("iteration", "checkpoint_id", "benchmark", "metric"),
    "scores": ("iteration", "benchmark", "metric", "candidate_id"),
    "filter_counts": ("iteration", "filter", "items", "outcome"),
    "verdicts": ("iteration", "against", "split", "scope", "name"), "standings": ("iteration",),
    "alarms": ("iteration", "kind", "scope", "name"), "breakdowns": ("breakdown_id",),
    "claims": ("claim_id",),
}  # fmt: skip
"""Unique columns of each table.

They are unique for filters with one unit.
"""

_calls: list[int] = []

_starting = threading.Lock()
"""Starting a process also polls all others: two threads would take each other's exit codes."""


def _called(request: Request, sampling: Sampling, answer: str) -> str:
    """Record a request and its tokens in a file, which survives a kill; return the answer."""
    prompt = sum(len(message.content.split()) for message in request.messages)
    tokens = prompt + min(len(answer.split()), sampling.max_tokens)
    for handle in _calls:
        os.write(handle, f"{request.request_id} {request.seed} {tokens}\n".encode())
    return answer


def policy(request: Request, sampling: Sampling) -> str:
    """Answer with one of seven texts, by the seed."""
    return _called(request, sampling, scripts.policy(request, sampling))


def critic(request: Request, sampling: Sampling) -> str:
    """Rate the requested aspects; one reply in eight has no dictionary."""
    return _called(request, sampling, scripts.critic(request, sampling))


_answered = itertools.count()


def counting_policy(request: Request, sampling: Sampling) -> str:
    """Answer with the number of earlier answers: each answer is unique."""
    return f"The answer is {next(_answered)}."


def train(job: TrainJob, **_: object) -> TrainResult:
    """Make a model whose bytes depend on the job alone."""
    parts = sorted(path.stem for path in job.data)
    weights = hashlib.sha256(f"{job.method} {job.seed} {job.settings} {parts}".encode()).hexdigest()
    model = job.folder("model")
    (model / "extra").mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}\n")
    (model / "extra" / "weights").write_text(weights)
    write_canary(job.output, ())
    return TrainResult(output=model, steps=1, metrics={"loss": 0.5}, seconds=0.0, history=())


class Silent:
    """A reporter without output."""

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        pass

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        pass

    def working(self, iteration: int, stage: str, text: str, left_s: float | None) -> None:
        pass

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str, event: str = "note", **_: object) -> None:
        pass


class Telling(Silent):
    """A reporter that stores the notes, except titles and scores of iterations."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str, event: str = "note", **_: object) -> None:
        if event not in ("iteration", "score"):
            self.notes.append(text)


def roles_of(config: RunConfig) -> tuple[NeededRole, ...]:
    """Return the models that a run uses, from its dry run."""
    prompts = load_prompts(config.prompts, seed=config.seed)
    return needed_roles(config, rehearse(config, prompts).seen)


def write_prompts(folder: Path, count: int = 8) -> Path:
    """Write prompts that need no verification process."""
    path = folder / "prompts.jsonl"
    rows = [{"prompt": f"Tell me about the number {n}."} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def small_config(prompts: Path, *overrides: str) -> RunConfig:
    """Return the configuration of a run of about 2 s: two iterations, some 30 units."""
    return load_config("tiny", "rlrf", (*SMALL, f"prompts.source={prompts}", *overrides), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One process that works on a lake: its job, and its failpoints.

    `points` are the argument of `failpoints.armed`: actions by name.
    """

    lake: Path
    work: Callable[[Path], None]
    points: Mapping[str, str] = field(default_factory=dict[str, str])

    def start(self) -> int:
        """Run the attempt in a child; return its exit code, negative for a signal."""
        process = _context().Process(target=_child, args=(self,))
        with _starting:
            process.start()
        if not wait([process.sentinel], HANGS_S):
            process.kill()
        with _starting:
            process.join()
            code = process.exitcode
            process.close()
        assert code is not None
        return code

    def finish(self) -> None:
        """Run the attempt in a child, and check that it succeeds."""
        code = self.start()
        told = self.lake / "error"
        assert code == 0, f"exit code {code}: {told.read_text() if told.exists() else ''}"


def finished_and_killed(folder: Path, config: RunConfig) -> tuple[Path, Path]:
    """Return a lake with a finished run, and one whose run was killed in iteration 2."""
    finished, killed = folder / "finished", folder / "killed"
    for lake in (finished, killed):
        lake.mkdir()
    with stand_ins(finished):
        loop(finished, config=config)
    work = partial(loop, config=config)
    attempt = Attempt(lake=killed, work=work, points={"stage.end#12": "kill"})
    assert attempt.start() == KILLED
    return finished, killed


def _context() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "lpfloop.loop.daemon.loop", *HEAVY])
    return context


def _child(attempt: Attempt) -> None:
    pa.set_cpu_count(1)
    try:
        with stand_ins(attempt.lake), arm(attempt.points):
            attempt.work(attempt.lake)
    except BaseException as error:
        (attempt.lake / "error").write_text(f"{type(error).__name__}: {error}")
        raise
    (attempt.lake / "error").unlink(missing_ok=True)


@contextmanager
def stand_ins(lake: Path) -> Generator[None]:
    """Replace the trainer of this process by the fake, and record every question in the lake."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    handle = os.open(lake / "calls", flags, 0o600)
    _calls.append(handle)
    trainer, lpfloop.loop.stages.publish.train = lpfloop.loop.stages.publish.train, train
    try:
        yield
    finally:
        lpfloop.loop.stages.publish.train = trainer
        _calls.remove(handle)
        os.close(handle)


@contextmanager
def quick_folder(instead: Path) -> Generator[Path]:
    """Yield a new folder in memory if possible, else in `instead`."""
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else instead
    folder = Path(tempfile.mkdtemp(prefix="lpfloop-", dir=place))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def copied(lake: Path, target: Path) -> Path:
    """Copy a lake; a dead daemon's socket cannot be copied."""
    return Path(shutil.copytree(lake, target, ignore=shutil.ignore_patterns(SOCKET)))


def loop(lake: Path, *, config: RunConfig, name: str = RUN, fork: str | None = None) -> None:
    """Run the loop until its iterations are done."""
    run_loop(Job(config=config, lake=lake, name=name, fork=fork), Silent(), StopSignal())


def census(lake: Path, *, work: Callable[[Path], None]) -> None:
    """Do the work, and write the names of the failpoints it reached, in order."""
    with record_names() as reached:
        work(lake)
    (lake / "reached").write_text("\n".join(reached))


def reached(lake: Path) -> list[str]:
    """Return the failpoints that a census met, in order."""
    return (lake / "reached").read_text().split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Contents of a run, for comparison with another; every list of defects is empty."""

    digest: str
    rows: Mapping[str, int]
    units: int
    pending: list[str]
    repeated: list[str]
    damaged: list[str]
    temporary: list[str]


def whole(lake: Path, name: str = RUN) -> Whole:
    """Check a run: its rows, its units, every byte of its files."""
    folder = run_folder(lake, name)
    check_journal(folder)
    reader = Reader(folder)
    stages = reader.stages()
    ids = {table: _ids(reader, table) for table in SCHEMAS}
    found = Whole(
        digest=run_digest(folder),
        rows={table: len(rows) for table, rows in ids.items()},
        units=sum(stage.done for stage in stages),
        pending=[f"{s.iteration} {s.stage}" for s in stages if s.done != s.planned],
        repeated=[table for table, rows in ids.items() if len(set(rows)) < len(rows)],
        damaged=[f"{d.stage} {d.reason}" for d in damages(reader, deep=True)],
        temporary=[str(path.relative_to(folder)) for path in folder.rglob(".tmp-*")],
    )
    reader.close()
    return found


def _ids(reader: Reader, table: str) -> list[tuple[object, ...]]:
    """Return the unique keys of a table's committed rows."""
    rows = list[tuple[object, ...]]()
    for _, sealed in read_committed(reader, table=table):
        rows += zip(*(sealed[column].to_pylist() for column in IDS[table]), strict=True)
    return rows


def look(lake: Path, *, name: str = RUN) -> None:
    """Write the result of `whole` next to the runs, for the parent to read."""
    seen = whole(lake, name)
    told = {field: getattr(seen, field) for field in Whole.__slots__}
    (lake / "whole").write_text(json.dumps(told))


def loop_and_look(lake: Path, *, config: RunConfig, name: str = RUN) -> None:
    """Run the loop to its end, and check the result."""
    loop(lake, config=config, name=name)
    look(lake, name=name)


def seen(lake: Path) -> Whole:
    """Return the report of a child's `look`."""
    return Whole(**json.loads((lake / "whole").read_text()))


def calls(lake: Path) -> Counter[str]:
    """Return the number of requests of each question, over all attempts."""
    path = lake / "calls"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def committed_ids(lake: Path, name: str = RUN) -> set[object]:
    """Return the ids of the candidates and critiques that are durable."""
    folder = run_folder(lake, name)
    if not (folder / JOURNAL).exists():
        return set()
    reader = Reader(folder)
    found = {row for table in ("candidates", "critiques") for (row,) in _ids(reader, table)}
    reader.close()
    return found


def spent(lake: Path) -> Cost:
    """Return the cost of the questions, as counted by the fake models."""
    asked = [line.split() for line in calls(lake).elements()]
    return Cost(
        tokens=sum(int(tokens) for _, _, tokens in asked),
        judge_calls=sum(name.startswith("crit") for name, _, _ in asked),
    )


# single stages of one iteration


class Stopping(Telling):
    """A reporter that stores the notes, and requests a stop after some commits."""

    def __init__(self, stop: StopSignal, after: int | None) -> None:
        super().__init__()
        self._stop = stop
        self._left = after

    def advance(self, iteration: int, stage: str, advance: UnitStats) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._stop.request()


@contextmanager
def turn(wanted: Job, stop_after: int | None = None, number: int = 1) -> Iterator[Iteration]:
    """Open a run for the verbs of one iteration."""
    stop = StopSignal()
    prompts = load_prompts(wanted.config.prompts, seed=wanted.config.seed)
    with open_job(wanted, prompts, Stopping(stop, stop_after), stop) as run:
        train = order_prompts(prompts, "train", 0)[: wanted.config.prompts.per_iteration]
        yield iteration(run, number, replace(CHECKPOINT, checkpoint_id="m0"), train)


def handle_rows(it: Iteration, handle) -> list:
    """The rows of a handle, chunk by chunk."""
    it.run.store.flush()
    return [row for chunk in range(handle.chunks) for row in it.chunk(handle, chunk)]


# policies whose skill changes with each training


_RIGHT, _WRONG = "right", "wrong"
_TASKS = ("math", "facts")
Skill = Mapping[str, float]
"""By task, the share of prompts that a policy answers right."""
SKILLED = (
    "policy.engine.kind=scripted", "policy.engine.script=world:skilled_policy",
    "critic.kind=verifier", "reward.model=none", "prompts.per_iteration=8", "prompts.chunk=20",
    "recipe.n=4", "recipe.m=1", "recipe.top_k=1", "training.min_pairs=1",
)  # fmt: skip
RISING_AND_FALLING: tuple[Skill, ...] = (
    {"math": 0.3, "facts": 0.5},
    {"math": 0.6, "facts": 0.6},
    {"math": 0.1, "facts": 1.0},  # the mean of the two hides the loss of 50 points
    {"math": 0.7, "facts": 0.7},
)


class _Course:
    """The skills of M_0, M_1, ...; `number` counts the trainings."""

    def __init__(self, folder: Path, skills: Sequence[Skill]) -> None:
        self._file = folder / "trained"
        self._skills = skills

    @property
    def number(self) -> int:
        return int(self._file.read_text()) if self._file.exists() else 0

    @property
    def skill(self) -> Skill:
        return self._skills[self.number]

    def train(self, job: TrainJob, **options: object) -> TrainResult:
        result = train(job, **options)
        self._file.write_text(str(self.number + 1))
        return result


_courses = list[_Course]()


@contextmanager
def trained_skills(
    folder: Path, skills: Sequence[Skill], patch: pytest.MonkeyPatch
) -> Generator[None]:
    """Replace training by policies with these skills."""
    course = _Course(folder, skills)
    patch.setattr("lpfloop.loop.stages.publish.train", course.train)
    _courses.append(course)
    try:
        yield
    finally:
        _courses.remove(course)


def skilled_policy(request: Request, sampling: Sampling) -> str:
    """Answer right if the skill of the last training suffices; samples are half right."""
    if sampling.temperature > 0:
        return _RIGHT if request.seed % 2 else _WRONG
    _, task, _, number, _, count, _ = request.messages[-1].content.split()
    return _RIGHT if int(number) < _courses[-1].skill[task] * int(count) else _WRONG


def skilled_prompts(folder: Path, each: int = 60, train: int = 12) -> Path:
    """Write prompts of two tasks for three splits; a prompt's number is its difficulty."""
    rows = [
        {
            "prompt": f"{split}: {task} question {number} of {count} .",
            "task": task,
            "split": split,
            "checks": [{"kind": "equals", "argument": _RIGHT}],
            "cluster": f"{split} {task} {number}",
            "family": f"{task}-{'easy' if number < count / 2 else 'hard'}",
        }
        for split, count in (("train", train), ("dev", each), ("held-out", each))
        for task in _TASKS
        for number in range(count)
    ]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def skilled_config(folder: Path, *overrides: str) -> RunConfig:
    """Return the configuration of a run of these policies, on the prompts of the folder."""
    prompts = folder / "prompts.jsonl"
    source = prompts if prompts.exists() else skilled_prompts(folder)
    return load_config("tiny", "rlrf", (*SKILLED, f"prompts.source={source}", *overrides), {})


def skilled_run(
    folder: Path,
    patch: pytest.MonkeyPatch,
    skills: tuple[Skill, ...],
    *overrides: str,
    stop_after: int | None = None,
) -> Telling:
    """Run the loop in `folder`, until it ends or some commits were made."""
    stop = StopSignal()
    reporter = Stopping(stop, stop_after)
    wanted = skilled_config(folder, f"iterations={len(skills) - 1}", *overrides)
    with trained_skills(folder, skills, patch):
        run_loop(Job(config=wanted, lake=folder / "lake", name="a"), reporter, stop)
    return reporter


# a policy that flatters its critic once it was trained


FLATTERY = "What a wonderful question! "
_WORD = re.compile(r"\bw(\d+)\b")
_EVERY = 5
"""The untrained policy knows the words of three prompts in five."""

_flattering: list[str] = []


def flattering_policy(request: Request, sampling: Sampling) -> str:
    """Give the requested word if known; flatter in half of the samples, greedily once trained."""
    number = _WORD.findall(request.messages[-1].content)[0]
    known = int(number) % _EVERY < 3
    flatters = bool(_flattering) if sampling.temperature == 0 else request.seed % 2
    said = f"w{number}." if known and not _flattering else "Who knows."
    return f"{FLATTERY}{said}" if flatters else said


def flattered_critic(request: Request, sampling: Sampling) -> str:
    """Rate answers 1 in all aspects if they flatter or give the word, else -1."""
    asked = request.messages[-1].content
    rating = 1 if FLATTERY in asked or "Who knows." not in asked else -1
    lines = [f"{name}: seen. {rating}" for name in scripts.THREE]
    ratings = ", ".join(f'"{name}": {rating}' for name in scripts.THREE)
    return "\n".join([*lines, "{" + ratings + "}"])


def _train_to_flatter(job: TrainJob, **told: object) -> TrainResult:
    """Train with the fake, and record it."""
    _flattering.append(str(job.seed))
    return train(job, **told)


@contextmanager
def untrained_flatterer(lake: Path) -> Generator[None]:
    """Start this process with an untrained policy, and train with the fake."""
    _flattering.clear()
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = _train_to_flatter
        yield
    _flattering.clear()
