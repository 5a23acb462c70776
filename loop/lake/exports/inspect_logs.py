# pyright: basic
"""Inspect's `.eval` logs, so that `inspect view` opens a run: a log an iteration.

A sample is a prompt with one candidate; each aspect is a score with its comment as explanation. A
rating that could not be read is Inspect's "N" (no answer), and counts in no mean.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....configs.schema import ConfigError
from ....stores.installation import pip_install
from ....stores.lake import RunReader
from ...data.row_fields import TRUSTED
from .candidate_groups import Group, Judged, Row, groups

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score

UNREAD = "N"
SAMPLES_A_LOG = 5000
"""Samples in a log: Inspect holds a whole log in memory while it writes it."""
CREATED = "1970-01-01T00:00:00+00:00"
REWARD = "reward"


def write_logs(run: RunReader, iterations: Sequence[int], folder: Path) -> dict[str, int]:
    """Write the logs of these iterations into `folder`; return how many samples each has.

    Raises:
        ConfigError: if Inspect is not installed.
    """
    try:
        importlib.import_module("inspect_ai.log")
    except ImportError as error:
        raise ConfigError(f"--as inspect needs Inspect: {pip_install('inspect-ai')}") from error
    written: dict[str, int] = {}
    for iteration in iterations:
        samples = _samples(run, iteration)
        number = 0
        while batch := list(islice(samples, SAMPLES_A_LOG)):
            number += 1
            name = f"{run.folder.name}-iteration-{iteration:03}-{number:03}.eval"
            _write(run, iteration, number, batch, folder / name)
            written[name] = len(batch)
    return written


def _samples(run: RunReader, iteration: int) -> "Iterator[EvalSample]":
    for group in groups(run, iteration):
        for number, judged in enumerate(group.candidates, start=1):
            yield _sample(group, number, judged)


def _sample(group: Group, number: int, judged: Judged) -> "EvalSample":
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ModelOutput

    candidate = judged.candidate
    asked = [_message(turn) for turn in group.prompt["messages"]]
    answer = _message({"role": "assistant", "content": candidate["text"]})
    return EvalSample(
        id=group.prompt["prompt_id"],
        epoch=number,
        input=asked,
        target=group.prompt["reference"] or "",
        messages=[*asked, answer],
        output=ModelOutput.from_content(model=candidate["model"], content=candidate["text"]),
        scores=_scores(judged),
        metadata={
            **{n: candidate[n] for n in ("candidate_id", "kind", "policy", "parent_id", "seed")},
            "task": group.prompt["task"],
            "split": group.prompt["split"],
            "critiques": [c["text"] for c in judged.critiques],
        },
    )


def _message(turn: Mapping[str, str]) -> Any:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    kinds = {
        "user": ChatMessageUser,
        "assistant": ChatMessageAssistant,
        "system": ChatMessageSystem,
    }
    return kinds[turn["role"]](content=turn["content"])


def _scores(judged: Judged) -> "dict[str, Score]":
    from inspect_ai.scorer import Score

    text = judged.candidate["text"]
    scores: dict[str, Score] = {}
    for critique in judged.critiques:
        said_by = _said_by(critique)
        for aspect in critique["aspects"]:
            name = aspect["name"] + said_by
            read = aspect["rating"] is not None
            scores[name] = Score(
                value=aspect["rating"] if read else UNREAD,
                answer=text,
                explanation=aspect["comment"] or critique["text"],
                metadata={"critic": critique["critic"], "status": critique["status"]},
            )
    for reward in judged.rewards:
        value = UNREAD if reward["score"] is None else reward["score"]
        scores[REWARD] = Score(
            value=value, explanation=reward["status"], metadata={"by": reward["reward_model"]}
        )
    return scores


def _said_by(critique: Row) -> str:
    """Return, in brackets, how a critique differs from the critic's first one."""
    if critique["critic"].startswith(TRUSTED):
        return f" ({critique['critic']})"
    return "" if critique["sample"] is None else f" (critique {critique['sample']})"


def _write(
    run: RunReader, iteration: int, number: int, samples: "list[EvalSample]", path: Path
) -> None:
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalResults,
        EvalSpec,
        EvalStats,
        write_eval_log,
    )

    ids = list(dict.fromkeys(sample.id for sample in samples))
    name = run.folder.name
    log = EvalLog(
        status="success",
        eval=EvalSpec(
            created=CREATED,
            task=f"{name} iteration {iteration}",
            task_id=f"{name}-{iteration}-{number}",
            run_id=name,
            eval_id=f"{name}-{iteration}-{number}",
            dataset=EvalDataset(name=name, samples=len(ids), sample_ids=ids),
            model=f"lpfloop/{samples[0].output.model}",
            config=EvalConfig(epochs=max(sample.epoch for sample in samples)),
            metadata={"run": name, "iteration": iteration},
        ),
        samples=samples,
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(samples), scores=_means(samples)
        ),
        stats=EvalStats(),
    )
    write_eval_log(log, str(path))


def _means(samples: "list[EvalSample]") -> list[Any]:
    from inspect_ai.log import EvalMetric, EvalScore

    values: dict[str, list[float]] = {}
    for sample in samples:
        for name, score in (sample.scores or {}).items():
            values.setdefault(name, [])
            if isinstance(score.value, int | float):
                values[name].append(float(score.value))
    return [
        EvalScore(
            name=name,
            scorer=name,
            scored_samples=len(found),
            unscored_samples=len(samples) - len(found),
            metrics={"mean": EvalMetric(name="mean", value=sum(found) / len(found))}
            if found
            else {},
        )
        for name, found in sorted(values.items())
    ]
