# pyright: basic
"""The prompts of an online method's steps, and the files of each step. Imports no model library.

A step's prompts, and the ids and seeds of its rollouts, are functions of the job and the step's
number alone, so a resumed training does not store them.

The files of step k in the work folder, each whole or absent:

- `steps/000k`: the rows of the step. They are durable before the step's line is in `metrics.jsonl`,
  and before a checkpoint of the step. So once progress reports step k, or the training its end, the
  rows of all steps up to there can be committed.
- `answers/000k`: answers for the parent to judge, by the verifier or a critic. The child writes
  them, appends the event `answers` to `metrics.jsonl`, and waits.
- `judged/000k.json`: for each answer a score of each requested source, null if it gave none. The
  parent writes them. They are valid for exactly the judged answers, texts included: a child that
  restarts and samples the same answers uses these scores, and no answer is judged twice.
"""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from time import sleep
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...configs.training import GroupTraining, OnlineSettings
from ...stores.durable import TEMPORARY, make_folder, publish_folder, put, remove, sweep, write_file
from ...stores.keys import canonical_json, derive_seed, row_id
from ...stores.records import (
    SCORED,
    Candidate,
    Message,
    Pair,
    Prompt,
    Reward,
    Rollout,
    Statistic,
    storable,
)
from ...stores.schemas import TABLES, Row, from_table, to_table
from ...stores.sealed import MANIFEST, file_sha256
from ...stores.verified import encode
from ..engines.engine import Completion
from .job import OnlineJob, RewardSource
from .work_folder import POLL_S, append_row, read_json, read_orders

STEP_FOLDERS, ANSWER_FOLDERS, JUDGED = "steps", "answers", "judged"

UNSCORED = "overlong"
"""The status of a missing reward: the conversation is too long for the model."""
NO_SCORE = "no_score"
"""The status if the user's reward function gave no score; other sources use `no_critic` etc."""

REFERENCE_REWARD, REFERENCE_ENDED = "reference_reward", "reference_ended"
"""The columns of a prompts file that hold a `ReferenceReward`."""

LEFT_OUT = "prompts/left_out"
"""The metric of each step that counts prompts without room for an answer, if there are any."""
REFUSED = "prompts/refused"
"""The metric of each step that counts prompts that the chat template refuses, if there are any."""
REFUSED_PROMPTS = "refused_prompts.json"
"""The file of the work folder with the chat template's error for each of these prompts, by id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceReward:
    """r(x, y_ref) of M_0's answer to a prompt (ChatGLM-RLHF, Eq. 5); `ended`: by an end token."""

    score: float
    ended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptToSample:
    """A prompt in the form for an online method; `prompt_id` is the lake's.

    With a `reference`, rewards are relative to the reference answer's.
    `prompt` is the argument for a user's reward function.
    """

    prompt_id: str
    messages: tuple[Message, ...]
    reference: ReferenceReward | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDraw:
    """A rollout before it is drawn: its prompt, its id in the lake, its seed."""

    candidate_id: str
    seed: int
    prompt: PromptToSample


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """The rows of one step, in the order of its rollouts.

    Every rollout has a candidate and a reward; a rollout that could be trained on also has a
    `Rollout`. `pairs` is None for a method that does not learn pairs.
    """

    candidates: Sequence[Candidate]
    rewards: Sequence[Reward]
    rollouts: Sequence[Rollout]
    statistics: Sequence[Statistic]
    pairs: Sequence[Pair] | None = None


def planned_steps(prompts: int, settings: OnlineSettings) -> int:
    """Return how many steps a training on `prompts` prompts makes; at least one.

    Prompts that are left at the end of an epoch begin the next epoch's first step.
    """
    if settings.max_steps is not None:
        return settings.max_steps
    return max(1, math.floor(prompts * settings.epochs) // prompts_a_step(settings))


def prompts_a_step(settings: OnlineSettings) -> int:
    """Return how many prompts a step visits: one for each of its rollouts, or of their groups."""
    return settings.rollouts // group_size(settings)


def group_size(settings: OnlineSettings) -> int:
    """Return how many answers are drawn to each prompt that a step visits."""
    return settings.group if isinstance(settings, GroupTraining) else 1


def sampled_places(prompts: int, seed: int, *, step: int, settings: OnlineSettings) -> list[int]:
    """Return the index of the prompt of each of a step's rollouts, group by group."""
    found = prompts_of_step(prompts, seed, step=step, rollouts=prompts_a_step(settings))
    return [place for place in found for _ in range(group_size(settings))]


def prompts_of_step(prompts: int, seed: int, *, step: int, rollouts: int) -> list[int]:
    """Return the indices of a step's prompts: each epoch visits all, in a new order.

    Steps count from 1; the epochs follow one another without a gap.
    """
    first = (step - 1) * rollouts
    places = (divmod(place, prompts) for place in range(first, first + rollouts))
    return [epoch_order(prompts, seed, epoch)[place] for epoch, place in places]


@lru_cache(maxsize=2)
def epoch_order(prompts: int, seed: int, epoch: int) -> tuple[int, ...]:
    """Return the order in which an epoch visits the prompts."""
    order = list(range(prompts))
    random.Random(derive_seed(seed, "epoch", epoch)).shuffle(order)
    return tuple(order)


def draws_of_step(
    job: OnlineJob, step: int, prompts: Sequence[PromptToSample]
) -> list[RolloutDraw]:
    """Return a step's rollouts to be drawn, one for each prompt, repeated prompts numbered."""
    seen = Counter[str]()
    rows: list[RolloutDraw] = []
    for prompt in prompts:
        name = [[job.identity, step], prompt.prompt_id, None, None, seen[prompt.prompt_id]]
        seen[prompt.prompt_id] += 1
        candidate_id = row_id("cand", name)
        seed = derive_seed(job.root_seed, "draw", candidate_id)
        rows.append(RolloutDraw(candidate_id=candidate_id, seed=seed, prompt=prompt))
    return rows


def read_prompts(parts: Sequence[Path], *, whole: bool = False) -> list[PromptToSample]:
    """Return the prompts of Parquet files with the columns `prompt_id` and `messages`.

    They may also have the columns of a reference answer's reward. `whole`: with all columns of
    `Prompt`.
    """

    def prompt_of(row: Mapping[str, Any], prompt: Prompt | None) -> PromptToSample:
        score, reference = row.get(REFERENCE_REWARD), None
        if score is not None:
            reference = ReferenceReward(score=score, ended=row[REFERENCE_ENDED])
        messages = tuple(Message(**m) for m in row["messages"])
        name = row["prompt_id"]
        return PromptToSample(prompt_id=name, messages=messages, reference=reference, prompt=prompt)

    found: list[PromptToSample] = []
    for table in map(pq.read_table, parts):
        rows = table.to_pylist()
        columns = [f.name for f in fields(Prompt)]
        prompts = from_table(Prompt, table.select(columns)) if whole else [None] * len(rows)
        found += map(prompt_of, rows, prompts)
    return found


def read_refused_prompts(work: Path) -> dict[str, str]:
    """Return the chat template's error for each prompt that it refuses, by the prompt's id."""
    return read_json(work / REFUSED_PROMPTS) or {}


def step_folder(work: Path, step: int, kind: str = STEP_FOLDERS) -> Path:
    """Return the folder of a step's rows, or of its answers, in the work folder of its training."""
    return work / kind / f"{step:04d}"


def write_step(work: Path, step: int, rows: StepRows) -> None:
    """Write a step's rows durably, replacing the rows of an interrupted attempt."""
    nouns: dict[type[Row], Sequence[Row]] = {
        Candidate: rows.candidates,
        Reward: rows.rewards,
        Rollout: rows.rollouts,
        Statistic: rows.statistics,
    }
    if rows.pairs is not None:
        nouns[Pair] = rows.pairs
    tables = {TABLES[noun]: to_table(noun, values) for noun, values in nouns.items()}
    publish_tables(step_folder(work, step), tables)


def publish_tables(folder: Path, tables: Mapping[str, pa.Table]) -> str:
    """Write tables durably into a folder, replacing its content; return its manifest's hash."""
    sweep(make_folder(folder.parent))
    draft = make_folder(folder.parent / f"{TEMPORARY}{folder.name}")
    for name, table in tables.items():
        data = encode(table).data
        put(draft / f"{name}.parquet", data, "file")
    if folder.exists():
        remove(folder)
    return publish_folder(draft, folder.parent, folder.name)


def read_step(work: Path, step: int) -> Mapping[type[Row], pa.Table]:
    """Return the tables of a step, by row type; pairs only for a method that learns them.

    Raises:
        FileNotFoundError: if the step is absent or incomplete.
    """
    folder = _whole(work, step, STEP_FOLDERS)
    nouns: Sequence[type[Any]] = (Candidate, Reward, Rollout, Statistic, Pair)
    files = ((noun, folder / f"{TABLES[noun]}.parquet") for noun in nouns)
    return {noun: pq.read_table(file) for noun, file in files if file.is_file()}


def _whole(work: Path, step: int, kind: str) -> Path:
    folder = step_folder(work, step, kind)
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} is absent or incomplete")
    return folder


Judged = Mapping[str, Mapping[RewardSource, float | None]]
"""By an answer's candidate id, the score of each requested source; None if it gave none."""


def write_answers(work: Path, step: int, answers: Sequence[Candidate]) -> None:
    """Write a step's answers for the parent, replacing the answers of an interrupted attempt."""
    tables = {TABLES[Candidate]: to_table(Candidate, answers)}
    publish_tables(step_folder(work, step, ANSWER_FOLDERS), tables)


def read_answers(work: Path, step: int) -> list[Candidate]:
    """Return the answers of a step that are to be judged, grouped by prompt.

    Raises:
        FileNotFoundError: if the answers are missing or incomplete.
    """
    folder = _whole(work, step, ANSWER_FOLDERS)
    return from_table(Candidate, pq.read_table(folder / f"{TABLES[Candidate]}.parquet"))


def write_judged(work: Path, step: int, judged: Judged) -> None:
    """Write the scores of all of a step's answers.

    Raises:
        ValueError: if an answer is missing or unknown, or a score is not finite.
    """
    ids = {answer.candidate_id for answer in read_answers(work, step)}
    if judged.keys() != ids:
        raise ValueError(f"step {step}: the scores do not match its {len(ids)} answers")
    sources: list[RewardSource] = sorted({s for scores in judged.values() for s in scores})
    scores = {name: {source: own.get(source) for source in sources} for name, own in judged.items()}
    for own in scores.values():
        for source, score in own.items():
            if score is not None and not math.isfinite(score):
                raise ValueError(f"step {step}: a score of the {source} is not finite")
    content = {"answers": _answers_hash(work, step), "scores": scores}
    write_file(_judged_file(work, step), json.dumps(content).encode())


def read_judged(work: Path, step: int, sources: Sequence[RewardSource]) -> Judged | None:
    """Return the scores of a step's present answers by `sources`.

    None without scores, or if they belong to other answers or sources.
    """
    found = read_json(_judged_file(work, step))
    if found is None or found["answers"] != _answers_hash(work, step):
        return None
    scores: Judged = found["scores"]
    if not all({*sources} <= own.keys() for own in scores.values()):
        return None
    return {name: {source: own[source] for source in sources} for name, own in scores.items()}


def ask_parent(
    work: Path,
    step: int,
    answers: Sequence[Candidate],
    sources: Sequence[RewardSource],
    *,
    alive: Callable[[], None],
) -> Judged | None:
    """Make the parent judge a step's answers; return their scores.

    None if a request to end the training came meanwhile.
    """
    write_answers(work, step, answers)
    found = read_judged(work, step, sources)
    if found is None:
        append_row(work, {"event": "answers", "step": step})
    while found is None:
        if read_orders(work).end:
            return None
        alive()
        sleep(POLL_S)
        found = read_judged(work, step, sources)
    return found


def _judged_file(work: Path, step: int) -> Path:
    return make_folder(work / JUDGED) / f"{step:04d}.json"


def _answers_hash(work: Path, step: int) -> str:
    """Return the hash of a step's answers, which is the hash of their folder's manifest."""
    manifest = step_folder(work, step, ANSWER_FOLDERS) / MANIFEST
    return file_sha256(manifest)


def candidate_row(job: OnlineJob, rollout: RolloutDraw, completion: Completion) -> Candidate:
    """Return the row of a rollout's text."""
    return Candidate(
        candidate_id=rollout.candidate_id,
        prompt_id=rollout.prompt.prompt_id,
        iteration=job.iteration,
        kind="rollout",
        parent_id=None,
        critique_id=None,
        policy=job.policy,
        model=job.model,
        principle=None,
        text=storable(completion.text),
        reasoning=storable(completion.reasoning) or None,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        finish_reason=completion.finish_reason,
        logprob=completion.logprob,
        seed=rollout.seed,
        sampling=canonical_json(job.sampling.model_dump(mode="json")),
    )


def reward_row(
    job: OnlineJob,
    rollout: RolloutDraw,
    score: float | None,
    scores: Mapping[RewardSource, float | None],
) -> Reward:
    """Return the row of a rollout's reward, `score`, by the `scores` of each source."""
    lacking = next((source for source, found in scores.items() if found is None), None)
    if lacking is None:
        status = SCORED
    elif lacking == "reward":
        status = NO_SCORE if job.function else UNSCORED
    else:
        status = f"no_{lacking}"
    return Reward(
        candidate_id=rollout.candidate_id,
        prompt_id=rollout.prompt.prompt_id,
        iteration=job.iteration,
        reward_model=job.reward_id,
        score=score,
        status=status,
    )


def last_rollouts(work: Path, parts: Sequence[Path]) -> Iterator[tuple[Message, ...]]:
    """Yield the last step's prompts with their complete answers, in order, each prompt once."""
    last = max((int(p.name) for p in (work / STEP_FOLDERS).glob("[0-9]*")), default=None)
    if last is None:
        return
    messages = {a.prompt_id: a.messages for a in read_prompts(parts)}
    for row in read_step(work, last)[Candidate].to_pylist():
        if row["finish_reason"] == "stop" and row["text"].strip() and row["prompt_id"] in messages:
            answer = Message(role="assistant", content=row["text"])
            yield (*messages.pop(row["prompt_id"]), answer)


def statistics(
    iteration: int, method: str, step: int, metrics: Mapping[str, float]
) -> list[Statistic]:
    """Return the numbers of a step as rows, by name."""
    return [
        Statistic(iteration=iteration, method=method, step=step, metric=name, value=value)
        for name, value in sorted(metrics.items())
    ]
