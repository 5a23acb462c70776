# pyright: basic
"""The turns that a policy learns: by which template, and with what thought before the answer."""

from typing import Any

import pyarrow.parquet as pq
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..engines.chat import ChatTokenizer, fit_template
from ..engines.thinking import INSIDE, ChatForm, Thinking, with_thought
from .job import TrainingError, TrainJob

ANSWERS = {
    "dpo": {"chosen": "chosen_id", "rejected": "rejected_id"},
    "sft": {"completion": "candidate_id"},
    "distil": {"completion": "candidate_id"},
    "kto": {"completion": "candidate_id"},
}
"""By method, the columns with answers, and those with the ids of their candidates."""


def chat_of(job: TrainJob) -> ChatTokenizer:
    """Return the tokenizer by which engines sample the model and measure its answers."""
    form = ChatForm(values=job.turns.values, tags=job.turns.tags)
    return ChatTokenizer.of(job.model, job.template, form)


def fit_turns(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Thinking | None:
    """Let a tokenizer render turns as the job says; return how the model thinks, if it does.

    Raises:
        TrainingError: of kind `refused`, if an answer alone cannot follow what is prompted.
    """
    turns = job.turns
    form = ChatForm(values=turns.values, tags=turns.tags, as_said=turns.thought != "template")
    thinking = fit_template(tokenizer, form, job.model)
    if turns.thought == "none" and thinking is not None and thinking.begun:
        raise TrainingError("refused", INSIDE.format(job.model))
    return thinking


def ids_of(job: TrainJob) -> list[str]:
    """Return the columns with the ids of candidates, where their thoughts are trained."""
    return [] if job.turns.thoughts is None else list(ANSWERS[job.method].values())


def with_thoughts(job: TrainJob, data: Dataset, thinking: Thinking | None) -> Dataset:
    """Return rows with the answers' own thoughts before them, where these are trained."""
    if job.turns.thoughts is None:
        return data
    if thinking is None:
        return data.remove_columns(ids_of(job))
    thoughts = dict(zip(*pq.read_table(job.turns.thoughts).to_pydict().values(), strict=True))

    def think(row: dict[str, Any]) -> dict[str, Any]:
        return {
            answer: thoughtful(row[answer], thoughts.get(row[identity]), thinking)
            for answer, identity in ANSWERS[job.method].items()
        }

    return data.map(think, remove_columns=ids_of(job))


def thoughtful(
    turns: list[dict[str, str]], reasoning: str | None, thinking: Thinking
) -> list[dict[str, str]]:
    """Return an answer's turn with its thought before it."""
    (turn,) = turns
    return [{**turn, "content": with_thought(turn["content"], reasoning, thinking)}]
