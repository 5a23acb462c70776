# pyright: basic
"""The rows that TRL's methods train on: read, rendered with their thoughts, packed.

`training.sft.packing` concatenates the rows of a forward pass, without padding. Its loss equals the
loss of padded rows only if no token attends to another row. Not every attention supports that, and
libraries do not report it: it is measured before the first step.
"""

from typing import Any

import pyarrow.parquet as pq
import torch
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
IGNORED = -100
"""The label of a token that is not learned."""
MIXING = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
"""Nats a token, on average, by which a packed row's loss may differ from its loss alone."""


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


def cut_rows(rows: Dataset, max_length: int) -> Dataset:
    """Cut rows to the length of the training, as TRL does with padding; drop rows without answers.

    TRL itself refuses to cut rows that it does not pad.
    """
    cut = rows.map(
        lambda row: {name: row[name][:max_length] for name in ("input_ids", "labels")},
        desc="Cutting",
    )
    return cut.filter(lambda row: any(label != IGNORED for label in row["labels"]))


def refuse_mixing(trainer: Any) -> None:
    """Refuse a model in which packed rows attend to one another.

    Raises:
        TrainingError: of kind `refused`.
    """
    data = trainer.train_dataset
    rows = [data[place] for place in range(min(2, len(data)))]
    if len(rows) == 1:
        rows *= 2
    model = trainer.model
    alone = torch.cat([_losses(trainer, [row]) for row in rows])
    together = _losses(trainer, rows)
    difference = float((alone - together).abs().mean())
    exact = model.dtype == torch.float32 and not torch.cuda.is_available()
    if not difference <= MIXING[torch.float32 if exact else torch.bfloat16]:
        raise TrainingError(
            "refused",
            f"training.sft.packing: in {type(model).__name__} packed rows attend to one another "
            f"(their losses differ by {difference:.2g} nats a token): leave it out, or choose "
            "another training.attention",
        )


def _losses(trainer: Any, rows: list[dict[str, Any]]) -> torch.Tensor:
    """Return the loss of each token that is learned, of rows in one forward pass."""
    device = trainer.accelerator.device
    batch = trainer.data_collator(rows)
    moved = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in batch.items()}
    labels = moved.pop("labels")[0, 1:]
    model = trainer.model.to(device)
    before = model.training
    model.eval()
    with torch.inference_mode(), trainer.accelerator.autocast():
        logits = model(**moved, use_cache=False).logits[0, :-1].float()
    model.train(before)
    learned = labels != IGNORED
    return torch.nn.functional.cross_entropy(logits[learned], labels[learned], reduction="none")
