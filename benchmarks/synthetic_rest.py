"""The rest of a synthetic iteration: refinements, pairs, training and measurements, for a report.

The rule makes the pairs from the stored candidates; everything else is invented.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from synthetic import STAGES, Synthetic, prompt_name, prompt_rows

REFINEMENTS = 4
"""Refinements of one candidate of each prompt."""
HELD_OUT = 500
STEPS = 1_000
METRICS = (
    *("loss", "learning_rate", "grad_norm", "entropy", "rewards/margins", "rewards/accuracies"),
    *("rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected"),
    *("token_logps/chosen", "token_logps/rejected", "token_logps/ref_chosen"),
    *("token_logps/ref_rejected", "token_logps/chosen_below_ref"),
)
MODELS = ("0" * 64, "1" * 64)


def write_rest(folder: Path, prompts: int, top_k: int) -> None:
    """Commit an iteration's rows other than samples and their judgements."""
    from lpfloop.stores.journal import Journal
    from lpfloop.stores.lake import RunReader, RunWriter

    data = Synthetic(prompts)
    store, run = RunWriter(Journal(folder)), RunReader(folder)
    _planned(store, 1, {name: len(data.chunks) for name in _judging("refine")})
    parents = _parents(run)
    for number, chunk in enumerate(data.chunks):
        _commit_judged(store, 1, "refine", number, _refinements(data, chunk, parents))
    store.flush()
    _pairs(store, run, len(data.chunks), top_k)
    for iteration in (0, 1):
        _measured(store, data, iteration)
    _trained(store)
    run.close()
    store.close()


def _judging(stage: str) -> dict[str, str]:
    """Return the stages of candidates, critiques and rewards, by the stage that samples."""
    return {name.replace("sample", stage): noun for noun, name in STAGES.items()}


def _planned(store: Any, iteration: int, stages: Mapping[str, int]) -> None:
    from lpfloop.stores.keys import digest

    for stage, count in stages.items():
        keys = [digest([iteration, stage, number]) for number in range(count)]
        store.journal.plan(iteration, stage, digest(stage), lambda keys=keys: keys)


def _commit(
    store: Any, place: tuple[int, str, int], tables: Mapping[type, Any], **spent: float
) -> None:
    rows = sum(len(each) for each in tables.values())
    store.commit(store.journal.key(*place), tables, {"rows": rows, **spent})


def _commit_judged(
    store: Any, iteration: int, stage: str, number: int, rows: Mapping[type, Sequence[Any]]
) -> None:
    named = {kind.__name__: (kind, made) for kind, made in rows.items()}
    for place, noun in _judging(stage).items():
        kind, made = named[noun]
        spent = {"tokens": 300.0 * len(made), "prompt_tokens": 900.0 * len(made)}
        _commit(store, (iteration, place, number), {kind: made}, **spent)


def _parents(run: Any) -> dict[str, tuple[str, str]]:
    """Return one candidate of each prompt, and its critique."""
    columns = {"prompt_id", "candidate_id", "critique_id"}
    first = run.scan("critiques", iteration=1, columns=columns).unique("prompt_id").collect()
    ids = first.select("prompt_id", "candidate_id", "critique_id").iter_rows()
    return {prompt: (candidate, critique) for prompt, candidate, critique in ids}


def _refinements(
    data: Synthetic, chunk: range, parents: Mapping[str, tuple[str, str]]
) -> dict[type, list[Any]]:
    from lpfloop.stores.records import Candidate, Critique, Reward

    draw = random.Random(f"refine {chunk.start}")
    rows = dict[type, list[Any]]({Candidate: [], Critique: [], Reward: []})
    for number in chunk:
        parent, critique = parents[prompt_name(number)]
        for place in range(REFINEMENTS):
            made, said, score = data.judged(draw, number, place)
            origin = {"kind": "refinement", "parent_id": parent, "critique_id": critique}
            rows[Candidate].append(replace(made, **origin))
            rows[Critique].append(said)
            rows[Reward].append(score)
    return rows


def _pairs(store: Any, run: Any, units: int, top_k: int) -> None:
    """Commit the pairs by blocks of prompts, one a unit; the other units are empty."""
    from lpfloop.loop.data.pairs import Pairing
    from lpfloop.loop.lake.derive.rebuild_pairs import derive
    from lpfloop.stores.frames import as_arrow
    from lpfloop.stores.records import Pair, PairingOutcome

    how = Pairing(rule="success_vs_failure", top_k=top_k, root_seed=0, iteration=1)
    made = iter(derive(run, Pair, how))
    for number in range(units):
        block = next(made, None)
        rows = {} if block is None else {Pair: block.rows, PairingOutcome: block.outcomes}
        tables = {kind: as_arrow(frame) for kind, frame in rows.items()}
        _commit(store, (1, "pair", number), tables or {Pair: [], PairingOutcome: []})
    store.flush()


def _measured(store: Any, data: Synthetic, iteration: int) -> None:
    """Commit M_t's answers to the held-out prompts, their judgements, and the scores of all."""
    from lpfloop.loop.evaluation.metrics import summarise
    from lpfloop.stores.records import (
        Candidate,
        Checkpoint,
        Critique,
        Evaluation,
        Prompt,
        Reward,
        Score,
    )

    asked = range(data.prompts, data.prompts + HELD_OUT)
    stages = dict.fromkeys(_judging("evaluate:held-out"), 1)
    _planned(store, iteration, {**stages, "measure:held-out": 1})
    draw = random.Random(f"measure {iteration}")
    rows = dict[type, list[Any]]({Candidate: [], Critique: [], Reward: []})
    for number in asked:
        made, said, score = (
            replace(row, iteration=iteration) for row in data.judged(draw, number, 0)
        )
        rows[Candidate].append(replace(made, kind="greedy"))
        rows[Critique].append(said)
        rows[Reward].append(score)
    _commit_judged(store, iteration, "evaluate:held-out", 0, rows)
    scores = list(_scores(draw, iteration, rows[Critique], rows[Reward]))
    model = replace(_checkpoint(iteration), steps=STEPS * iteration)
    tables: dict[type, Any] = {Score: scores, Evaluation: summarise(scores), Checkpoint: [model]}
    if iteration == 0:
        tables[Prompt] = [replace(prompt, split="held-out") for prompt in prompt_rows(asked)]
    _commit(store, (iteration, "measure:held-out", 0), tables)
    store.flush()


def _scores(
    draw: random.Random, iteration: int, critiques: Sequence[Any], rewards: Sequence[Any]
) -> Iterator[Any]:
    from lpfloop.stores.records import Score

    for critique, reward in zip(critiques, rewards, strict=True):
        right = draw.random() < 0.4 + 0.2 * iteration
        told = {
            "math_accuracy": float(right),
            "mean_length": 300.0,
            "critic_agreement": float(critique.positive == right),
            "reward": reward.score,
            **{f"rating:{aspect.name}": float(aspect.rating) for aspect in critique.aspects},
        }
        for metric, value in told.items():
            yield Score(
                iteration=iteration,
                checkpoint_id=MODELS[iteration],
                benchmark="held-out",
                metric=metric,
                prompt_id=critique.prompt_id,
                candidate_id=critique.candidate_id,
                value=value,
            )


def _checkpoint(iteration: int) -> Any:
    from lpfloop.stores.records import Checkpoint

    parent = MODELS[0] if iteration else None
    return Checkpoint(
        checkpoint_id=MODELS[iteration],
        parent_id=parent,
        reference_id=parent,
        iteration=iteration,
        recipe="rlrf" if iteration else "initial",
        path=f"checkpoints/{MODELS[iteration]}",
        steps=0,
        metrics="{}",
    )


def _trained(store: Any) -> None:
    """Commit the metrics of a training's steps."""
    from lpfloop.stores.records import Statistic

    _planned(store, 1, {"train": 1})
    draw = random.Random("train")
    rows = [
        Statistic(
            iteration=1,
            method="dpo",
            step=step,
            metric=metric,
            value=math.exp(-step / STEPS) + draw.gauss(0, 0.1),
        )
        for step in range(1, STEPS + 1)
        for metric in METRICS
    ]
    _commit(store, (1, "train", 0), {Statistic: rows})
