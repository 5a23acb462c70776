"""Lakes written row by row, without a loop: a test knows all their rows."""

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rows import (
    ALARM,
    CANDIDATE,
    CHECKPOINT,
    CRITIQUE,
    DEMONSTRATION,
    EVALUATION,
    PAIR,
    PROMPT,
    REWARD,
    SCORE,
    YIELD,
)
from rows import PREFERENCE as ROW_PREFERENCE

from lpfloop.configs.load import resolve_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.equal_tokens import stepped_method
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.stage_names import step_benchmark
from lpfloop.stores.durable import publish_folder
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL
from lpfloop.stores.keys import digest
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.objects import objects_of
from lpfloop.stores.records import (
    Alarm,
    AspectRating,
    Candidate,
    Check,
    Checkpoint,
    Critique,
    Evaluation,
    Message,
    Pair,
    PairingOutcome,
    Preference,
    Prompt,
    Reward,
    Score,
)
from lpfloop.stores.schemas import Row, RowsByType

# a small run that holds one of everything


HOSTILE = "\x1b[2J\u202e<script>alert(1)</script>[bold red]"
M0, M1 = "0a" * 32, "1b" * 32
ASPECTS = ("Comprehension", "Completeness", "Readability")


def write_run(
    lake: Path,
    name: str,
    tables: Mapping[int, Mapping[type[Row], Sequence[Row]]],
    *,
    recipe: str | None = None,
    stage: str = "made",
) -> Path:
    """Write the rows of each iteration as one unit each, and return the run's folder."""
    config = {} if recipe is None else {"recipe": {"name": recipe}}
    folder = run_folder(lake, name)
    writer = RunWriter(Journal.create(folder, {"config": json.dumps(config)}))
    for iteration, rows in tables.items():
        commit(writer, iteration, stage, rows)
    writer.close()
    return folder


def commit(writer: RunWriter, iteration: int, stage: str, rows: Mapping, /, **told: float) -> None:
    """Commit a stage of one unit, with its statistics."""
    unit = f"{iteration}-{stage}"
    writer.journal.plan(iteration, stage, unit, lambda: [unit])
    writer.commit(unit, rows, told)
    writer.flush()


def prompt(number: int, **fields: object) -> Prompt:
    """Return a unique prompt."""
    said = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", messages=said, **fields)


def candidate(identity: str, about: Prompt, text: str, **fields: object) -> Candidate:
    """Return a candidate of M_0 in iteration 1."""
    return replace(
        CANDIDATE, candidate_id=f"cand-{identity}", prompt_id=about.prompt_id, policy=M0, text=text,
        **fields,
    )  # fmt: skip


def critique(of: Candidate, *ratings: int | None, **fields: object) -> Critique:
    """Return a critique with these ratings; without ratings, an unreadable one."""
    aspects = tuple(
        AspectRating(name=name, rating=rating, comment="")
        for name, rating in zip(ASPECTS, ratings, strict=False)
    )
    return replace(
        CRITIQUE, critique_id=of.candidate_id.replace("cand", "crit"), candidate_id=of.candidate_id,
        prompt_id=of.prompt_id, iteration=of.iteration, aspects=aspects,
        text=f"Said of {of.candidate_id}.", status="scored" if ratings else "no_dictionary",
        **fields,
    )  # fmt: skip


def reward(of: Candidate, score: float) -> Reward:
    return replace(
        REWARD, candidate_id=of.candidate_id, prompt_id=of.prompt_id, score=score, status="scored"
    )


def made(
    about: Prompt, outcome: str, count: int = 0, rule: str = "success_vs_failure"
) -> PairingOutcome:
    """Return the outcome of pairing for a prompt."""
    return replace(YIELD, prompt_id=about.prompt_id, rule=rule, outcome=outcome, made=count)


PAIRED, LACKING = prompt(1, reference=f"five {HOSTILE}"), prompt(2)
HELD_OUT = [prompt(n, split="held-out") for n in range(10, 16)]

GOOD = candidate("good", PAIRED, "The answer is five.")
BAD = candidate("bad", PAIRED, HOSTILE)
BETTER = candidate(
    "better", PAIRED, "The right answer is five.", kind="refinement", parent_id=GOOD.candidate_id,
    critique_id="crit-good",
)  # fmt: skip
FAIR = candidate("fair", LACKING, "Perhaps five.")
MUTE = candidate("mute", LACKING, "No idea.")

MADE_PAIR = replace(
    PAIR, pair_id="pair-made", chosen_id=BETTER.candidate_id, rejected_id=BAD.candidate_id,
    chosen_ratings=(1, 1, 1), rejected_ratings=(1, -1, 0), chosen_reward=1.5, rejected_reward=0.25,
)  # fmt: skip


PREFERENCE = replace(
    ROW_PREFERENCE, preference_id="pref-made", prompt_id=PAIRED.prompt_id,
    first_id=BAD.candidate_id, second_id=GOOD.candidate_id, annotator="people", preferred="second",
    order="as_given", text="",
)  # fmt: skip


def answers(iteration: int, values: Sequence[float]) -> dict[type[Row], list[Row]]:
    """Return the greedy answers of M_t to the held-out prompts, with their scores."""
    model = (M0, M1)[iteration]
    greedy = [
        candidate(
            f"greedy-{iteration}-{asked.prompt_id}",
            asked,
            f"It is {'right' if value else 'wrong'}.",
            kind="greedy",
            iteration=iteration,
        )
        for asked, value in zip(HELD_OUT, values, strict=True)
    ]
    scores = [
        replace(
            SCORE,
            iteration=iteration,
            checkpoint_id=model,
            metric=metric,
            prompt_id=answer.prompt_id,
            candidate_id=answer.candidate_id,
            value=number,
        )
        for answer, value in zip(greedy, values, strict=True)
        for metric, number in (("math_accuracy", value), ("mean_length", 10.0 + iteration))
    ]
    number = replace(
        EVALUATION, iteration=iteration, checkpoint_id=model, value=sum(values) / len(values),
        n=len(values),
    )  # fmt: skip
    return {Candidate: list(greedy), Score: list(scores), Evaluation: [number]}


def told_run(lake: Path, name: str = "told") -> Path:
    """Write a run of one iteration: a prompt with a pair, one without, two models."""
    before, after = answers(0, [0, 0, 0, 0, 1, 1]), answers(1, [1, 1, 1, 0, 0, 1])
    started = replace(CHECKPOINT, checkpoint_id=M0)
    trained = replace(
        CHECKPOINT, checkpoint_id=M1, parent_id=M0, reference_id=M0, iteration=1, recipe="rlrf",
        path=f"checkpoints/{M1}", steps=7, metrics='{"loss":0.5}',
    )  # fmt: skip
    drafts = [GOOD, BAD, BETTER, FAIR, MUTE]
    return write_run(
        lake,
        name,
        {
            0: {Prompt: [PAIRED, LACKING, *HELD_OUT], Checkpoint: [started], **before},
            1: {
                **after,
                Candidate: [*drafts, *after[Candidate]],
                Critique: [
                    critique(GOOD, 1, 1, 0),
                    critique(BAD, 1, -1, 0),
                    critique(BETTER, 1, 1, 1),
                    critique(FAIR, 1, 0, 1),
                    critique(MUTE),
                ],
                Reward: [reward(GOOD, 0.5), reward(BAD, 0.25), reward(BETTER, 1.5)],
                Pair: [MADE_PAIR],
                Preference: [PREFERENCE],
                PairingOutcome: [made(PAIRED, "paired", 1), made(LACKING, "no_positive")],
                Checkpoint: [trained],
            },
        },
    )


# two small runs to be queried


TASKS = ("math", "fact")
TASK_ASPECTS = {"math": ("Logical Correctness",), "fact": ("Factuality", "Completeness")}
RATINGS = (1, 0, -1, None)
RUNS = ("a", "b")
PROMPTS, SAMPLES = 6, 4


def asked_lake(lake: Path) -> None:
    """Make runs `a` and `b`: 6 prompts, 4 candidates each, in iterations 1 and 2.

    Candidate k of a prompt has rating RATINGS[k] on its first aspect (None: its critique is
    unscored), 1 on others; reward k; 10 (k + 1) tokens; the last is truncated.
    """
    for name in RUNS:
        writer = RunWriter(Journal.create(run_folder(lake, name), {"config": "{}"}))
        prompts = [_asked_prompt(number) for number in range(PROMPTS)]
        commit(writer, 0, "prompts", {Prompt: prompts}, tokens=7.0)
        for iteration in (1, 2):
            for kind, rows in _asked_rows(prompts, iteration).items():
                commit(writer, iteration, kind.__name__.lower(), {kind: rows}, tokens=7.0)
        writer.journal.record("end", {"why": "test"})
        writer.close()


def _asked_prompt(number):
    messages = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", task=TASKS[number % 2], messages=messages)


def _asked_rows(prompts, iteration):
    each = [(prompt, k) for prompt in prompts for k in range(SAMPLES)]
    return {
        Candidate: [_asked_candidate(prompt, k, iteration) for prompt, k in each],
        Critique: [_asked_critique(prompt, k, iteration) for prompt, k in each],
        Reward: [
            replace(REWARD, score=float(k), status="scored", **_place(prompt, k, iteration))
            for prompt, k in each
        ],
        Pair: [_asked_pair(prompt, iteration) for prompt in prompts],
        PairingOutcome: [
            replace(YIELD, prompt_id=prompt.prompt_id, iteration=iteration) for prompt in prompts
        ],
    }


def _place(prompt, k, iteration):
    return {
        "candidate_id": f"cand-{prompt.prompt_id}-{iteration}-{k}",
        "prompt_id": prompt.prompt_id,
        "iteration": iteration,
    }


def _asked_candidate(prompt, k, iteration):
    return replace(
        CANDIDATE, kind="refinement" if k == 1 else "sample", text=f"Answer {k}: " + "word " * k,
        completion_tokens=10 * (k + 1), finish_reason="length" if k == SAMPLES - 1 else "stop",
        **_place(prompt, k, iteration),
    )  # fmt: skip


def _asked_critique(prompt, k, iteration):
    first, *rest = TASK_ASPECTS[prompt.task]
    aspects = (
        AspectRating(name=first, rating=RATINGS[k], comment=f"comment {k}"),
        *(AspectRating(name=name, rating=1, comment="") for name in rest),
    )
    scored = RATINGS[k] is not None
    return replace(
        CRITIQUE,
        critique_id=f"crit-{prompt.prompt_id}-{iteration}-{k}",
        aspects=aspects if scored else (),
        text=f"critique {k} \u202e\x1b[31m of {prompt.prompt_id}",
        status="scored" if scored else "unreadable",
        **_place(prompt, k, iteration),
    )


def _asked_pair(prompt, iteration):
    ids = [f"cand-{prompt.prompt_id}-{iteration}-{k}" for k in range(SAMPLES)]
    return replace(
        PAIR, pair_id=f"pair-{prompt.prompt_id}-{iteration}", prompt_id=prompt.prompt_id,
        iteration=iteration, chosen_id=ids[0], rejected_id=ids[2], chosen_reward=2.0 * iteration,
        rejected_reward=1.0, rank=int(prompt.prompt_id[-1]) % 2,
    )  # fmt: skip


# runs of one stage with few rows a unit, whose prompts come in no order


def unordered_candidates(chunk: int, count: int) -> list[Candidate]:
    """Return rows with prompts in random order."""
    return [
        replace(
            CANDIDATE,
            candidate_id=f"cand-{chunk}-{n}",
            prompt_id=f"prompt-{(chunk * 7 + n * 5) % 19:02}",
            text=f"answer {n} of chunk {chunk}",
            seed=chunk * 100 + n,
        )
        for n in range(count)
    ]


def unit_rows(chunk: int, count: int) -> dict:
    rows = unordered_candidates(chunk, count)
    return {
        Candidate: rows,
        Critique: [
            replace(CRITIQUE, critique_id=f"crit{c.seed}", prompt_id=c.prompt_id) for c in rows
        ],
        # Most units have no pairs, so their Pair files are identical.
        Pair: [PAIR] if chunk == 3 else [],
    }


def make_units(folder: Path, counts: list[int], iteration: int = 1) -> RunWriter:
    """Commit a stage of units with so many rows each."""
    there = (folder / "journal.sqlite").exists()
    writer = RunWriter(Journal(folder) if there else Journal.create(folder, {}))
    plan_units(writer, counts, iteration)
    return writer


def plan_units(writer: RunWriter, counts: list[int], iteration: int = 1) -> None:
    keys = [f"{iteration}-{chunk}" for chunk in range(len(counts))]
    writer.journal.plan(iteration, "sample", "x", lambda: keys)
    for chunk, count in enumerate(counts):
        writer.commit(keys[chunk], unit_rows(chunk, count), {})
    writer.flush()


# a run with three models whose files are real: M_0 as it is shipped, M_1 and M_2 published


FIRST = "0f" * 32
_ADAPTED = 2
"""The iteration whose model has adapters as well as weights."""
Measured = Mapping[str, Sequence[Sequence[float]]]
"""The values of a metric on the held-out prompts, for each of the models."""
_SUCCESS: Measured = {
    "math_accuracy": [[0, 0, 0, 0, 0, 1], [1, 1, 1, 0, 0, 1], [1, 1, 0, 0, 0, 1]],
    "mean_length": [[9] * 6, [8] * 6, [20] * 6],
}


def published_run(
    lake: Path, policy: Path, name: str = "r", measured: Measured = _SUCCESS
) -> list[str]:
    """Write the run; return the ids of its models."""
    folder = run_folder(lake, name)
    rows = [replace(CHECKPOINT, checkpoint_id=FIRST, path=str(policy))]
    write_run(lake, name, {})
    for number in (1, 2):
        draft = folder / "work" / f"draft-{number}"
        shutil.copytree(policy, draft)
        (draft / "number.txt").write_text(str(number))
        if number == _ADAPTED:
            (draft / "adapter").mkdir()
            (draft / "adapter" / "adapter_model.safetensors").write_bytes(b"adapters")
        identity = publish_folder(draft, folder / "checkpoints")
        objects_of(folder).publish(folder / "checkpoints" / identity)
        parent = rows[-1].checkpoint_id
        rows.append(
            replace(
                CHECKPOINT,
                checkpoint_id=identity,
                parent_id=parent,
                reference_id=parent,
                iteration=number,
                recipe="rlrf",
                path=f"checkpoints/{identity}",
                steps=number,
            )
        )
    made = {row.iteration: {Checkpoint: [row], **_numbers(row, measured)} for row in rows}
    _add_rows(folder, {**made, 0: {Prompt: HELD_OUT, **made[0]}})
    return [row.checkpoint_id for row in rows]


def _numbers(row: Checkpoint, measured: Measured) -> dict[type, list]:
    """Return a model's scores and their means."""
    own = {metric: values[row.iteration] for metric, values in measured.items()}
    place = {"iteration": row.iteration, "checkpoint_id": row.checkpoint_id}
    return {
        Score: [
            replace(SCORE, **place, metric=metric, prompt_id=prompt.prompt_id, value=float(value))
            for metric, values in own.items()
            for prompt, value in zip(HELD_OUT, values, strict=False)
        ],
        Evaluation: [
            replace(
                EVALUATION,
                **place,
                metric=metric,
                value=sum(values) / len(values),
                stderr=0.1,
                n=len(values),
            )
            for metric, values in own.items()
            if values
        ],
    }


def _add_rows(folder: Path, tables: Mapping[int, Mapping]) -> None:
    writer = RunWriter(Journal(folder))
    for iteration, rows in tables.items():
        commit(writer, iteration, "models", rows)
    writer.close()


# a finished run with given texts in every column that a page can show


PER_PROMPT = 30
"""Number of samples of a prompt; each text is unique, but the first occurs twice."""
BEFORE, AFTER = digest("before"), digest("after")


class Texts:
    """Gives texts in turn, and starts over after the last."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._given = 0

    def __call__(self) -> str:
        """Return the next text."""
        self._given += 1
        return self._texts[(self._given - 1) % len(self._texts)]


def write_shown(lake: Path, name: str, texts: Sequence[str], config: str) -> None:
    """Commit a run of one iteration that has these texts in every text column."""
    journal = Journal.create(run_folder(lake, name), {"config": config, "fingerprint": "{}"})
    with closing(RunWriter(journal)) as store:
        for stage, rows in _shown_stages(texts).items():
            iteration, _, called = stage.partition(" ")
            tables: dict[type[Row], list[Any]] = {}
            for row in rows:
                tables.setdefault(type(row), []).append(row)
            commit(store, int(iteration), called, tables, rows=len(rows))


def _shown_stages(texts: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of each stage, by its iteration and name."""
    turn = Texts(texts)
    prompts = [_shown_prompt(number, turn) for number in range(-(-len(texts) // PER_PROMPT))]
    made = [rows for prompt in prompts for rows in _shown_answers(prompt, texts, turn)]
    candidates = [row for row in made if isinstance(row, Candidate)]
    return {
        "0 prompts": [*prompts],
        "0 initial": [_shown_checkpoint(0, BEFORE, turn), _shown_checkpoint(1, AFTER, turn)],
        "1 sample": [*candidates],
        "1 critique:sample": [row for row in made if isinstance(row, Critique)],
        "1 reward:sample": [row for row in made if isinstance(row, Reward)],
        "1 pair": [row for prompt in prompts for row in _shown_training(prompt, candidates, turn)],
        "0 measure:held-out": measured(0, BEFORE, prompts, candidates),
        "1 measure:held-out": measured(1, AFTER, prompts, candidates),
        "1 alarms": [_shown_alarm(turn, candidates[0].candidate_id)],
    }


def _shown_prompt(number: int, turn: Texts) -> Prompt:
    """Return a prompt; its id is a text, too, as users may choose any id."""
    identity, task = f"p{number} {turn()[:300]}", turn()
    said = (Message(role=turn(), content=turn()), Message(role="user", content=turn()))
    return Prompt(
        prompt_id=identity, task=task, split="held-out", messages=said, reference=turn(),
        checks=(Check(kind=turn(), argument=turn()),), source=turn(), family=turn(),
    )  # fmt: skip


def _shown_answers(prompt: Prompt, texts: Sequence[str], turn: Texts) -> list[Row]:
    """Return the candidates of a prompt with a critique and a reward each."""
    first = int(prompt.prompt_id[1:].split()[0]) * PER_PROMPT
    own = texts[first : first + PER_PROMPT]
    rows: list[Row] = []
    for number, text in enumerate(own):
        parent = None if number < len(own) // 2 else f"cand-{first:06x}00"
        place = {"candidate_id": f"cand-{first:06x}{number:02x}", "prompt_id": prompt.prompt_id}
        answer = replace(
            CANDIDATE, **place, kind="refinement" if parent else "sample", parent_id=parent,
            policy=turn(), model=turn(), principle=turn(), text=text, reasoning=turn(),
            completion_tokens=number,
        )  # fmt: skip
        critic, rating = turn(), 1 if number % 2 else -1
        aspects = (
            AspectRating(name=turn(), rating=rating, comment=turn()),
            AspectRating(name=turn(), rating=None, comment=turn()),
        )
        critique = replace(
            CRITIQUE, **place, critique_id=f"crit-{first:06x}{number:02x}", critic=critic,
            aspects=aspects, text=turn(), status="scored" if number else turn(),
        )  # fmt: skip
        reward = replace(
            REWARD, **place, reward_model=turn(), score=float(number) if number else None,
            status="scored" if number else turn(),
        )  # fmt: skip
        rows += [answer, critique, reward]
    again = next(row for row in rows if isinstance(row, Candidate))
    return [*rows, replace(again, candidate_id=f"cand-{first:06x}{len(own):02x}")]


def _shown_training(prompt: Prompt, candidates: Sequence[Candidate], turn: Texts) -> list[Row]:
    """Return the training rows."""
    worse, better = [row for row in candidates if row.prompt_id == prompt.prompt_id][:2]
    asked = {"prompt_id": prompt.prompt_id, "prompt": prompt.messages}
    pair = replace(
        PAIR, **asked, pair_id=worse.candidate_id.replace("cand", "pair"),
        chosen_id=better.candidate_id, rejected_id=worse.candidate_id, rule=turn(),
        chosen_reward=1.0, rejected_reward=0.0,
        chosen=(Message(role=turn(), content=better.text),),
        rejected=(Message(role=turn(), content=worse.text),),
    )  # fmt: skip
    demonstration = replace(
        DEMONSTRATION, **asked, demonstration_id=worse.candidate_id.replace("cand", "demo"),
        candidate_id=better.candidate_id, rule=turn(), reward=1.0,
        completion=(Message(role=turn(), content=better.text),),
    )  # fmt: skip
    made = replace(YIELD, prompt_id=prompt.prompt_id, rule=turn(), outcome=turn())
    return [pair, demonstration, made]


def measured(
    number: int, identity: str, prompts: Sequence[Prompt], candidates: Sequence[Candidate]
) -> list[Row]:
    """Return a policy's scores: the first policy solves every prompt, the second none."""
    place = {"iteration": number, "checkpoint_id": identity, "value": 1.0 - number}
    answers = {
        prompt.prompt_id: [r.candidate_id for r in candidates if r.prompt_id == prompt.prompt_id]
        for prompt in prompts
    }
    scores = [
        replace(SCORE, **place, prompt_id=prompt, candidate_id=ids[number])
        for prompt, ids in answers.items()
    ]
    return [replace(EVALUATION, **place, n=len(prompts)), *scores]


def _shown_checkpoint(number: int, identity: str, turn: Texts) -> Checkpoint:
    return replace(
        CHECKPOINT, checkpoint_id=identity, parent_id=BEFORE if number else None, iteration=number,
        recipe=turn(), path=turn(), steps=1,
    )  # fmt: skip


def _shown_alarm(turn: Texts, example: str) -> Alarm:
    """Return an alarm with a given text."""
    return replace(
        ALARM, iteration=1, checkpoint_id=AFTER, kind="copies", name=turn(), before=None, after=1.0,
        limit=0.0, stops=False, message=turn(), examples=(example, turn()),
    )  # fmt: skip


# runs with known tokens and scores


COURSE_PROMPTS = 20


@dataclass(frozen=True, kw_only=True)
class MadeIteration:
    """An iteration or some of its steps: tokens of each unit, and the accuracy afterwards.

    `steps`: numbers of the steps that published a policy, the last one of the training among them.
    """

    policy_tokens: int
    right: float | Sequence[float]
    judge_tokens: int = 0
    judge_calls: int = 1
    steps: Sequence[int] = ()


def write_course(
    lake: Path,
    name: str,
    made: Sequence[MadeIteration],
    *,
    initial: float = 0.2,
    config: Mapping[str, object] | None = None,
) -> None:
    """Write a run: M_0 has the accuracy `initial`, each later iteration is one of `made`."""
    said = {"recipe": {"name": "rlrf"}, "seed": 0, **(config or {})}
    facts = {"config": json.dumps(said), "fingerprint": "{}"}
    with closing(RunWriter(Journal.create(run_folder(lake, name), facts))) as store:
        writing = _Writing(store)
        asked = [_course_prompt(number) for number in range(COURSE_PROMPTS)]
        writing.unit(0, "prompts", {Prompt: asked})
        writing.unit(0, "initial", {Checkpoint: [_course_checkpoint(0)]})
        writing.eval_set(0, initial)
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
        """Commit a stage with a unit for each telemetry, all rows in the first."""
        keys = [f"{iteration}/{stage}/{n}" for n in range(max(1, len(telemetry)))]
        self.store.journal.plan(iteration, stage, keys[0], lambda: keys)
        for place, (key, told) in enumerate(zip(keys, telemetry or ({},), strict=True)):
            self.store.commit(key, tables if place == 0 else {}, told)
        self.store.flush()

    def eval_set(self, iteration: int, right: float, step: int | None = None) -> None:
        """Commit a policy's scores on dev and on held-out prompts."""
        for split in ("dev", "held-out"):
            benchmark = step_benchmark(split, step)
            scores = list(_course_scores(iteration, benchmark, right))
            self.unit(iteration, f"evaluate:{benchmark}", {}, {"tokens": 7_000, "calls": 20})
            self.unit(iteration, f"measure:{benchmark}", {Score: scores})


def _write_iteration(writing: _Writing, number: int, made: MadeIteration) -> None:
    writing.unit(number, "sample:smoke", {}, {"tokens": 500})
    last = replace(_course_checkpoint(number), steps=max(made.steps, default=1))
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
            writing.eval_set(number, right, step)
    else:
        writing.unit(number, "sample", {}, {"tokens": made.policy_tokens, "prompt_tokens": 11})
        if made.judge_tokens:
            told = {"tokens": made.judge_tokens, "judge_calls": made.judge_calls}
            writing.unit(number, "critique:sample", {}, told)
    writing.unit(number, "train", {Checkpoint: [last]})
    writing.eval_set(number, shares[-1])


def _course_prompt(number: int) -> Prompt:
    said = (Message(role="user", content=f"Question {number}?"),)
    return replace(PROMPT, prompt_id=f"prompt-{number}", messages=said, split="held-out")


def _course_checkpoint(iteration: int) -> Checkpoint:
    return replace(
        CHECKPOINT, checkpoint_id=f"m{iteration}", iteration=iteration, steps=1, at_step=None
    )


def _course_scores(iteration: int, benchmark: str, right: float) -> Sequence[Score]:
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
        for number in range(COURSE_PROMPTS)
        for metric, value in (
            ("verified", float(number < round(COURSE_PROMPTS * right))),
            ("mean_length", 10.0 + iteration),
        )
    ]


@dataclass
class TurnedWorld:
    """Runs jobs without a model: tokens of a prompt or a step, and the policies' accuracy.

    `gain` is the increase in accuracy by a thousand tokens of the policy, for each recipe and for
    the preset's or another learning rate.
    """

    policy_tokens: int = 100
    judge_tokens: int = 50
    step_tokens: int = 2_000
    gain: float = 0.02
    best_rate: float | None = None

    def __post_init__(self) -> None:
        self.turned: list[str] = []
        self.rates: dict[str, float] = {}
        self.sizes: dict[str, tuple[int, int | None]] = {}

    def turn(self, job: Job) -> None:
        """Make the run of the job; keep finished iterations as they are."""
        self.turned.append(job.name)
        self.rates[job.name] = job.config.training.dpo.learning_rate
        self.sizes[job.name] = (job.config.iterations, job.config.prompts.per_iteration)
        if (run_folder(job.lake, job.name) / JOURNAL).exists():
            return
        write_course(job.lake, job.name, self.made(job.config), config=_plain(job.config))

    def made(self, config: RunConfig) -> list[MadeIteration]:
        """Return the iterations of a run."""
        method = stepped_method(config)
        if method:
            steps = config.training.ppo.max_steps or 1
            every = config.training.ppo.publish_every or steps
            published = [*range(every, steps, every), steps]
            shares = [self.right(config, step * self.step_tokens) for step in published]
            return [MadeIteration(policy_tokens=self.step_tokens, right=shares, steps=published)]
        prompts = config.prompts.per_iteration or 1
        return [
            MadeIteration(
                policy_tokens=self.policy_tokens * prompts,
                judge_tokens=self.judge_tokens * prompts,
                judge_calls=prompts,
                right=self.right(config, number * self.policy_tokens * prompts),
            )
            for number in range(1, config.iterations + 1)
        ]

    def right(self, config: RunConfig, tokens: int) -> float:
        """Return the accuracy after so many tokens."""
        suits = self.best_rate in (None, config.training.dpo.learning_rate)
        return min(1.0, 0.2 + (self.gain if suits else 0.0) * tokens / 1000)


def _plain(config: RunConfig) -> Mapping[str, object]:
    told = resolve_config(config)
    assert isinstance(told, dict)
    return told
