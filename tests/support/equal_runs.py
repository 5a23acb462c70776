"""Runs whose every token and score is known, written as the loop would have left them."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from examples import CHECKPOINT, PROMPT, SCORE
from lpfloop.configs.load import resolved
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.equal_sizes import stepped_method
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.step_names import step_benchmark
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import Checkpoint, Message, Prompt, Score
from lpfloop.stores.schemas import RowsByType

PROMPTS = 20


@dataclass(frozen=True, kw_only=True)
class Made:
    """An iteration, or some steps of one: what each unit generates, and the share right after it.

    `steps` says after which steps of how many a policy was published, the last among them.
    """

    policy_tokens: int
    right: float | Sequence[float]
    judge_tokens: int = 0
    judge_calls: int = 1
    steps: Sequence[int] = ()


def write_course(
    lake: Path,
    name: str,
    made: Sequence[Made],
    *,
    initial: float = 0.2,
    config: Mapping[str, object] | None = None,
) -> None:
    """Write a run: M_0 has `initial` right, each later iteration is one of `made`."""
    said = {"recipe": {"name": "rlrf"}, "seed": 0, **(config or {})}
    facts = {"config": json.dumps(said), "fingerprint": "{}"}
    with closing(RunWriter(Journal.create(run_folder(lake, name), facts))) as store:
        writing = _Writing(store)
        asked = [_prompt(number) for number in range(PROMPTS)]
        writing.unit(0, "prompts", {Prompt: asked})
        writing.unit(0, "initial", {Checkpoint: [_checkpoint(0)]})
        writing.exam(0, initial)
        for number, each in enumerate(made, start=1):
            _write_iteration(writing, number, each)
        store.journal.record("end", "done: test")


@dataclass
class _Writing:
    """Plans and commits one stage of units after another."""

    store: RunWriter

    def unit(
        self, iteration: int, stage: str, tables: RowsByType, *telemetry: Mapping[str, float]
    ) -> None:
        """Commit a stage of as many units as telemetry is given, the rows in the first."""
        keys = [f"{iteration}/{stage}/{n}" for n in range(max(1, len(telemetry)))]
        self.store.journal.plan(iteration, stage, keys[0], lambda: keys)
        for place, (key, told) in enumerate(zip(keys, telemetry or ({},), strict=True)):
            self.store.commit(key, tables if place == 0 else {}, told)
        self.store.flush()

    def exam(self, iteration: int, right: float, step: int | None = None) -> None:
        """Commit what a policy scored on dev and on held-out prompts."""
        for split in ("dev", "held-out"):
            benchmark = step_benchmark(split, step)
            scores = list(_scores(iteration, benchmark, right))
            self.unit(iteration, f"evaluate:{benchmark}", {}, {"tokens": 7_000, "calls": 20})
            self.unit(iteration, f"measure:{benchmark}", {Score: scores})


def _write_iteration(writing: _Writing, number: int, made: Made) -> None:
    writing.unit(number, "sample:smoke", {}, {"tokens": 500})
    last = replace(_checkpoint(number), steps=max(made.steps, default=1))
    shares = [made.right] if isinstance(made.right, float) else made.right
    if made.steps:
        total = max(made.steps)
        each = {"tokens": made.policy_tokens + made.judge_tokens}
        each |= {"judge_tokens": made.judge_tokens, "judge_calls": made.judge_calls}
        writing.unit(number, "ppo", {}, *([each] * total))
        between = list(zip(made.steps[:-1], shares[:-1], strict=True))
        rows = [
            replace(last, checkpoint_id=f"{number}@{step}", steps=step, at_step=step)
            for step, _ in between
        ]
        writing.unit(number, "train:steps", {Checkpoint: rows})
        for step, right in between:
            writing.exam(number, right, step)
    else:
        writing.unit(number, "sample", {}, {"tokens": made.policy_tokens, "prompt_tokens": 11})
        if made.judge_tokens:
            told = {"tokens": made.judge_tokens, "judge_calls": made.judge_calls}
            writing.unit(number, "critique:sample", {}, told)
    writing.unit(number, "train", {Checkpoint: [last]})
    writing.exam(number, shares[-1])


def _prompt(number: int) -> Prompt:
    said = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", messages=said, split="held-out")


def _checkpoint(iteration: int) -> Checkpoint:
    return replace(
        CHECKPOINT, checkpoint_id=f"m{iteration}", iteration=iteration, steps=1, at_step=None
    )


def _scores(iteration: int, benchmark: str, right: float) -> Sequence[Score]:
    return [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=f"m{iteration}",
            benchmark=benchmark,
            metric=metric,
            prompt_id=f"prompt-{number}",
            candidate_id=f"{benchmark}-{iteration}-{number}",
            value=value,
        )
        for number in range(PROMPTS)
        for metric, value in (
            ("verified", float(number < round(PROMPTS * right))),
            ("mean_length", 10.0 + iteration),
        )
    ]


@dataclass
class World:
    """Turns jobs without a model: what a prompt or a step generates, and how good policies get.

    `gain` is the share right that a thousand tokens of the policy add, by recipe and by whether the
    learning rate is the preset's own.
    """

    policy_tokens: int = 100
    judge_tokens: int = 50
    step_tokens: int = 2_000
    gain: float = 0.02
    best_rate: float | None = None

    def __post_init__(self) -> None:
        self.turned: list[str] = []

    def turn(self, job: Job) -> None:
        """Leave the run that the job asks for; what is there already is left as it is."""
        self.turned.append(job.name)
        if (run_folder(job.lake, job.name) / JOURNAL).exists():
            return
        write_course(job.lake, job.name, self.made(job.config), config=_plain(job.config))

    def made(self, config: RunConfig) -> list[Made]:
        """Return what the iterations of a run make."""
        method = stepped_method(config)
        if method:
            steps = config.training.ppo.max_steps or 1
            every = config.training.ppo.publish_every or steps
            published = [*range(every, steps, every), steps]
            shares = [self.right(config, step * self.step_tokens) for step in published]
            return [Made(policy_tokens=self.step_tokens, right=shares, steps=published)]
        prompts = config.prompts.per_iteration or 1
        return [
            Made(
                policy_tokens=self.policy_tokens * prompts,
                judge_tokens=self.judge_tokens * prompts,
                judge_calls=prompts,
                right=self.right(config, number * self.policy_tokens * prompts),
            )
            for number in range(1, config.iterations + 1)
        ]

    def right(self, config: RunConfig, tokens: int) -> float:
        """Return the share right after so many tokens."""
        suits = self.best_rate in (None, config.training.dpo.learning_rate)
        return min(1.0, 0.2 + (self.gain if suits else 0.0) * tokens / 1000)


def _plain(config: RunConfig) -> Mapping[str, object]:
    told = resolved(config)
    assert isinstance(told, dict)
    return told
