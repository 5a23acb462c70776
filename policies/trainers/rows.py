# pyright: basic
"""The rows that TRL's methods train on: read, and rendered with their thoughts."""

from typing import Any

import pyarrow.parquet as pq
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..engines.chat import ChatTokenizer, fit_template
from ..engines.thinking import INSIDE, ChatForm, Thinking, with_thought
from .job import TrainingError, TrainJob
from .work_folder import CACHE

LABEL, ASKED = "label", "prompt_id"
COLUMNS = {
    "dpo": ("prompt", "chosen", "rejected"),
    "sft": ("prompt", "completion"),
    "kto": ("prompt", "completion", LABEL, ASKED),
}
ANSWERS = {
    "dpo": {"chosen": "chosen_id", "rejected": "rejected_id"},
    "sft": {"completion": "candidate_id"},
    "kto": {"completion": "candidate_id"},
}
"""By method, the columns with answers, and the columns with the ids of their candidates."""


def chat_form(job: TrainJob) -> ChatForm:
    """Return the form in which the template renders the job's conversations."""
    turns = job.turns
    return ChatForm(values=turns.values, tags=turns.tags, as_said=turns.thought != "template")


def chat_of(job: TrainJob) -> ChatTokenizer:
    """Return the tokenizer by which engines sample the model and measure its answers."""
    form = ChatForm(values=job.turns.values, tags=job.turns.tags)
    return ChatTokenizer.of(job.model, job.template, form)


def fit_turns(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Thinking | None:
    """Make a tokenizer render turns as the job configures; return the model's thinking, if any.

    Raises:
        TrainingError: of kind `refused`, if an answer without a thought cannot follow the prompt.
    """
    thinking = fit_template(tokenizer, chat_form(job), job.model)
    if job.turns.thought == "none" and thinking is not None and thinking.begun:
        raise TrainingError("refused", INSIDE.format(job.model))
    return thinking


def load_data(job: TrainJob, thinking: Thinking | None) -> Dataset:
    """Return the rows of the job's files, in their order, with the columns that are trained on.

    If the job trains on the answers' own thoughts, they come before the answers.
    """
    thoughtful = job.turns.thoughts is not None
    ids = list(ANSWERS[job.method].values()) if thoughtful else []
    data = Dataset.from_parquet(
        [str(p) for p in job.data],
        columns=[*COLUMNS[job.method], *ids],
        cache_dir=str(job.folder(CACHE)),
    )
    if not len(data):
        raise TrainingError("refused", "no row to train on")
    if job.turns.thoughts is None:
        return data
    if thinking is None:
        return data.remove_columns(ids)
    thoughts = dict(zip(*pq.read_table(job.turns.thoughts).to_pydict().values(), strict=True))

    def think(row: dict[str, Any]) -> dict[str, Any]:
        return {
            answer: _thoughtful(row[answer], thoughts.get(row[identity]), thinking)
            for answer, identity in ANSWERS[job.method].items()
        }

    return data.map(think, remove_columns=ids)


def _thoughtful(
    turns: list[dict[str, str]], reasoning: str | None, thinking: Thinking
) -> list[dict[str, str]]:
    """Return an answer's turn with its thought before it."""
    (turn,) = turns
    return [{**turn, "content": with_thought(turn["content"], reasoning, thinking)}]
