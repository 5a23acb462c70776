"""A scripted policy whose skill changes with each training, as a test writes it down.

The trainer is a stand-in that publishes other weights each time; how many trainings there were is
kept in a file, so that a run that is stopped and resumed meets the same policies.
"""

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import crashing
import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.trainers.train_model import TrainJob, TrainResult

RIGHT, WRONG = "right", "wrong"
TASKS = ("math", "facts")
Skill = Mapping[str, float]
"""By task, the share of prompts that a policy answers rightly."""
SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=skills:policy",
    "critic.kind=verifier",
    "reward.model=none",
    "prompts.per_iteration=8",
    "prompts.chunk=20",
    "recipe.n=4",
    "recipe.m=1",
    "recipe.top_k=1",
    "training.min_pairs=1",
)
RISING_AND_FALLING: tuple[Skill, ...] = (
    {"math": 0.3, "facts": 0.5},
    {"math": 0.6, "facts": 0.6},
    {"math": 0.1, "facts": 1.0},  # the loss of 50 points hides in the mean of the two
    {"math": 0.7, "facts": 0.7},
)


class Trained:
    """The skills of M_0, M_1, ...; `number` is how many trainings there were."""

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
        result = crashing.train(job, **options)
        self._file.write_text(str(self.number + 1))
        return result


_trained = list[Trained]()


@contextmanager
def trained(folder: Path, skills: Sequence[Skill], patch: pytest.MonkeyPatch) -> Generator[None]:
    """Let runs meet policies of these skills."""
    course = Trained(folder, skills)
    patch.setattr("lpfloop.loop.stages.publish.train", course.train)
    _trained.append(course)
    try:
        yield
    finally:
        _trained.remove(course)


def policy(request: Request, sampling: Sampling) -> str:
    """Answer rightly if the skill of the last training reaches so far; drafts are of both kinds."""
    if sampling.temperature > 0:
        return RIGHT if request.seed % 2 else WRONG
    _, task, _, number, _, count, _ = request.messages[-1].content.split()
    return RIGHT if int(number) < _trained[-1].skill[task] * int(count) else WRONG


def prompts_file(folder: Path, each: int = 60, train: int = 12) -> Path:
    """Write prompts of two tasks for three splits; their number says how hard they are."""
    rows = [
        {
            "prompt": f"{split}: {task} question {number} of {count} .",
            "task": task,
            "split": split,
            "checks": [{"kind": "equals", "argument": RIGHT}],
            "cluster": f"{split} {task} {number}",
            "family": f"{task}-{'easy' if number < count / 2 else 'hard'}",
        }
        for split, count in (("train", train), ("dev", each), ("held-out", each))
        for task in TASKS
        for number in range(count)
    ]
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def config(folder: Path, *overrides: str) -> RunConfig:
    """Return the configuration of a run of these policies, on the prompts of the folder."""
    prompts = folder / "prompts.jsonl"
    source = prompts if prompts.exists() else prompts_file(folder)
    return load_config("tiny", "rlrf", (*SCRIPTED, f"prompts.source={source}", *overrides), {})


def turned(
    folder: Path,
    patch: pytest.MonkeyPatch,
    skills: tuple[Skill, ...],
    *overrides: str,
    stop_after: int | None = None,
) -> crashing.Telling:
    """Run the loop in `folder`, until it ends or some commits were made."""
    stop = StopSignal()

    class Stopping(crashing.Telling):
        commits = 0

        def advance(self, iteration: int, stage: str, advance: object) -> None:
            self.commits += 1
            if self.commits == stop_after:
                stop.request()

    reporter = Stopping()
    wanted = config(folder, f"iterations={len(skills) - 1}", *overrides)
    with trained(folder, skills, patch):
        run_loop(Job(config=wanted, lake=folder / "lake", name="a"), reporter, stop)
    return reporter
