"""A finished run whose rows hold given texts in every column that a page can show."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from lpfloop.stores.journal import Journal
from lpfloop.stores.keys import digest
from lpfloop.stores.lake import RunWriter, run_folder
from lpfloop.stores.records import (
    Alarm,
    AspectRating,
    Candidate,
    Check,
    Checkpoint,
    Critique,
    Demonstration,
    Evaluation,
    Message,
    Pair,
    Prompt,
    Reward,
    Score,
    Yield,
)
from lpfloop.stores.schemas import Row

PER_PROMPT = 30
"""How many samples a prompt has, each with a text of its own; the first text comes twice."""
BEFORE, AFTER = digest("before"), digest("after")


class Texts:
    """Gives texts in turn, from the first again after the last."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._given = 0

    def __call__(self) -> str:
        """Give the next text."""
        self._given += 1
        return self._texts[(self._given - 1) % len(self._texts)]


def write_run(lake: Path, name: str, texts: Sequence[str], config: str) -> None:
    """Commit a run of one iteration whose every column of text holds these texts."""
    journal = Journal.create(run_folder(lake, name), {"config": config, "fingerprint": "{}"})
    with closing(RunWriter(journal)) as store:
        for stage, rows in stages(texts).items():
            iteration, _, called = stage.partition(" ")
            journal.plan(int(iteration), called, digest(stage), lambda stage=stage: [digest(stage)])
            tables: dict[type[Row], list[Any]] = {}
            for row in rows:
                tables.setdefault(type(row), []).append(row)
            store.commit(digest(stage), tables, {"rows": len(rows)})
        store.flush()


def stages(texts: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows of each stage, by its iteration and name."""
    turn = Texts(texts)
    prompts = [a_prompt(number, turn) for number in range(-(-len(texts) // PER_PROMPT))]
    made = [rows for prompt in prompts for rows in judged(prompt, texts, turn)]
    candidates = [row for row in made if isinstance(row, Candidate)]
    return {
        "0 prompts": [*prompts],
        "0 initial": [checkpoint(0, BEFORE, turn), checkpoint(1, AFTER, turn)],
        "1 sample": [*candidates],
        "1 critique:sample": [row for row in made if isinstance(row, Critique)],
        "1 reward:sample": [row for row in made if isinstance(row, Reward)],
        "1 pair": [row for prompt in prompts for row in training(prompt, candidates, turn)],
        "0 measure:held-out": measured(0, BEFORE, prompts, candidates),
        "1 measure:held-out": measured(1, AFTER, prompts, candidates),
        "1 alarms": [an_alarm(turn, candidates[0].candidate_id)],
    }


def a_prompt(number: int, turn: Texts) -> Prompt:
    """Return a prompt; its id is a text, too, for people may give any."""
    return Prompt(
        prompt_id=f"p{number} {turn()[:300]}",
        task=turn(),
        split="held-out",
        messages=(Message(role=turn(), content=turn()), Message(role="user", content=turn())),
        reference=turn(),
        checks=(Check(kind=turn(), argument=turn()),),
        source=turn(),
        family=turn(),
    )


def judged(prompt: Prompt, texts: Sequence[str], turn: Texts) -> list[Row]:
    """Return the candidates of a prompt with a critique and a reward each."""
    first = int(prompt.prompt_id[1:].split()[0]) * PER_PROMPT
    own = texts[first : first + PER_PROMPT]
    rows: list[Row] = []
    for number, text in enumerate(own):
        parent = None if number < len(own) // 2 else f"cand-{first:06x}00"
        identity = f"cand-{first:06x}{number:02x}"
        rows += [
            Candidate(
                candidate_id=identity,
                prompt_id=prompt.prompt_id,
                iteration=1,
                kind="sample" if parent is None else "refinement",
                parent_id=parent,
                critique_id=None,
                policy=turn(),
                model=turn(),
                principle=turn(),
                text=text,
                reasoning=turn(),
                prompt_tokens=1,
                completion_tokens=number,
                finish_reason="stop",
                logprob=None,
                seed=0,
                sampling="{}",
            ),
            Critique(
                critique_id=identity.replace("cand", "crit"),
                candidate_id=identity,
                prompt_id=prompt.prompt_id,
                iteration=1,
                critic=turn(),
                aspects=(
                    AspectRating(name=turn(), rating=1 if number % 2 else -1, comment=turn()),
                    AspectRating(name=turn(), rating=None, comment=turn()),
                ),
                text=turn(),
                reference_used=True,
                status="scored" if number else turn(),
                attempts=1,
            ),
            Reward(
                candidate_id=identity,
                prompt_id=prompt.prompt_id,
                iteration=1,
                reward_model=turn(),
                score=float(number) if number else None,
                status="scored" if number else turn(),
            ),
        ]
    again = next(row for row in rows if isinstance(row, Candidate))
    return [*rows, replace(again, candidate_id=f"cand-{first:06x}{len(own):02x}")]


def training(prompt: Prompt, candidates: Sequence[Candidate], turn: Texts) -> list[Row]:
    """Return what was made to train on."""
    own = [row for row in candidates if row.prompt_id == prompt.prompt_id]
    worse, better = own[0], own[1]
    return [
        Pair(
            pair_id=worse.candidate_id.replace("cand", "pair"),
            prompt_id=prompt.prompt_id,
            iteration=1,
            chosen_id=better.candidate_id,
            rejected_id=worse.candidate_id,
            rule=turn(),
            rank=0,
            chosen_ratings=(1,),
            rejected_ratings=(-1,),
            chosen_reward=1.0,
            rejected_reward=0.0,
            prompt=prompt.messages,
            chosen=(Message(role=turn(), content=better.text),),
            rejected=(Message(role=turn(), content=worse.text),),
        ),
        Demonstration(
            demonstration_id=worse.candidate_id.replace("cand", "demo"),
            prompt_id=prompt.prompt_id,
            iteration=1,
            candidate_id=better.candidate_id,
            rule=turn(),
            rank=0,
            ratings=(1,),
            reward=1.0,
            prompt=prompt.messages,
            completion=(Message(role=turn(), content=better.text),),
        ),
        Yield(prompt_id=prompt.prompt_id, iteration=1, rule=turn(), outcome=turn(), made=1),
    ]


def measured(
    number: int, identity: str, prompts: Sequence[Prompt], candidates: Sequence[Candidate]
) -> list[Row]:
    """Return what a policy got: the first is right on every prompt, the second on none."""
    value = 1.0 - number
    score = {"iteration": number, "checkpoint_id": identity, "benchmark": "held-out"}
    score |= {"metric": "math_accuracy", "value": value}
    answers = [
        [row.candidate_id for row in candidates if row.prompt_id == prompt.prompt_id][number]
        for prompt in prompts
    ]
    return [
        Evaluation(**score, stderr=None, n=len(prompts)),
        *(
            Score(**score, prompt_id=prompt.prompt_id, candidate_id=answer)
            for prompt, answer in zip(prompts, answers, strict=True)
        ),
    ]


def checkpoint(number: int, identity: str, turn: Texts) -> Checkpoint:
    """Return a model."""
    return Checkpoint(
        checkpoint_id=identity,
        parent_id=BEFORE if number else None,
        reference_id=None,
        iteration=number,
        recipe=turn(),
        path=turn(),
        steps=1,
        metrics="{}",
    )


def an_alarm(turn: Texts, example: str) -> Alarm:
    """Return an alarm that tells a text."""
    return Alarm(
        iteration=1,
        checkpoint_id=AFTER,
        kind=turn(),
        scope="family",
        name=turn(),
        before=None,
        after=1.0,
        limit=0.0,
        stops=False,
        told=turn(),
        examples=(example, turn()),
    )
