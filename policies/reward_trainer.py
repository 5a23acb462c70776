# pyright: basic
"""A reward model from pairs: TRL's trainer, on exactly the tokens that are scored later.

The classifier begins with the body of a language model and a fresh head, one number read at the
last token, and minimises the Bradley-Terry loss -log sigma(r(x, y+) - r(x, y-)) (AlpacaFarm,
Section 2.2). Some pairs are kept aside; how often the saved model, read again from the disk, ranks
these rightly is its accuracy.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow.parquet as pq
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedTokenizerBase,
    Trainer,
)
from trl.trainer.reward_config import RewardConfig as RewardArguments
from trl.trainer.reward_trainer import RewardTrainer

from ..configs.methods import RewardTraining
from ..configs.schema import RewardConfig
from ..stores.keys import derive_seed
from ..stores.records import Message
from .chat import ChatTokenizer
from .engine import ScoreBatch, ScoreRequest
from .reward_scorer import RewardScorer, padding
from .trainer_faults import TrainingError
from .trainer_job import TrainJob
from .trainer_process import PULSE
from .trl_trainer import Pulse, common_arguments, refuse_world

logger = logging.getLogger(__name__)

COLUMNS = ("pair_id", "prompt", "chosen", "rejected")
SIDES = ("chosen", "rejected")
HELD_OUT_SHARE = 10
"""At most one pair in so many is kept aside."""

_Row = Mapping[str, Any]


def make_reward_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build TRL's trainer of a reward model."""
    args = RewardArguments(**common_arguments(job))
    refuse_world(job, args)
    rows = encoded(job, parted_pairs(job)[0], ChatTokenizer(tokenizer, job.model))
    endings = {row[f"{side}_ids"][-1] for row in rows for side in SIDES}
    own: Any = tokenizer.pad_token_id
    # The tokenizer's own may be the end token, which the head would not read. The trainer's is
    # changed, not the model's config: that follows the tokenizer when training begins.
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding(endings, own))
    return RewardTrainer(
        model=load_classifier(job),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )


def load_classifier(job: TrainJob) -> Any:
    """Load the body of the job's model under a fresh head, which the job's seed decides."""
    torch.manual_seed(job.seed % 2**32)
    model = AutoModelForSequenceClassification.from_pretrained(
        job.model,
        num_labels=1,
        dtype=job.dtype,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )
    model.register_forward_pre_hook(Pulse(job.folder(PULSE)))
    return model


def parted_pairs(job: TrainJob) -> tuple[list[_Row], list[_Row]]:
    """Return the pairs to train on, in the data's order, and those that are kept aside.

    Which they are depends on the seed and the pairs' ids alone.
    """
    rows: list[_Row] = [
        row for path in job.data for row in pq.read_table(path, columns=list(COLUMNS)).to_pylist()
    ]
    settings = job.settings
    if not isinstance(settings, RewardTraining):
        raise TypeError(f"a reward model is not trained with {type(settings).__name__}")
    count = min(settings.held_out, len(rows) // HELD_OUT_SHARE)
    drawn = sorted(derive_seed(job.seed, "held-out", row["pair_id"]) for row in rows)
    limit = drawn[count - 1] if count else -1
    aside = [derive_seed(job.seed, "held-out", row["pair_id"]) <= limit for row in rows]
    kept = [row for row, out in zip(rows, aside, strict=True) if not out]
    return kept, [row for row, out in zip(rows, aside, strict=True) if out]


def encoded(
    job: TrainJob, pairs: Sequence[_Row], tokenizer: ChatTokenizer
) -> list[dict[str, list[int]]]:
    """Return the token ids of both sides of each pair that fits the length of the training.

    Raises:
        TrainingError: if no pair is left.
    """
    read = partial(tokenizer.judged, sees_end=job.sees_end)
    rows = [{f"{side}_ids": read(conversation(pair, side)) for side in SIDES} for pair in pairs]
    longest = job.settings.max_length
    fitting = [row for row in rows if all(0 < len(ids) <= longest for ids in row.values())]
    if len(fitting) < len(rows):
        logger.warning("%d pairs exceed %d tokens", len(rows) - len(fitting), longest)
    if not fitting:
        raise TrainingError("refused", f"there is no pair of at most {longest} tokens to train on")
    return fitting


def conversation(pair: _Row, side: str) -> tuple[Message, ...]:
    """Return the prompt of a pair with the answer of one side."""
    return tuple(Message(**turn) for turn in (*pair["prompt"], *pair[side]))


def held_out_accuracy(job: TrainJob) -> dict[str, float]:
    """Measure the saved model on the pairs that were kept aside; nothing where there are none."""
    pairs = parted_pairs(job)[1]
    margins = list(_margins(job, pairs))
    if not margins:
        return {}
    right = sum(1.0 if margin > 0 else 0.5 * (margin == 0) for margin in margins)
    return {"held_out/accuracy": right / len(margins), "held_out/pairs": float(len(margins))}


def _margins(job: TrainJob, pairs: Sequence[_Row]) -> Iterator[float]:
    """Give r(x, y+) - r(x, y-) of the pairs that fit, scored as the loop scores."""
    settings = job.settings
    config = RewardConfig(
        batch_size=len(SIDES), max_length=settings.max_length, sees_end=job.sees_end
    )
    scorer = RewardScorer(job.folder("model"), config)
    pulse = Pulse(job.folder(PULSE))
    for result in scorer.score(_compared(pair) for pair in pairs):
        pulse()
        chosen, rejected = result.scores
        if chosen is not None and rejected is not None:
            yield chosen - rejected
    scorer.close()


def _compared(pair: _Row) -> ScoreBatch:
    """Return both sides of a pair as one batch to be scored."""
    requests = (ScoreRequest(request_id=side, messages=conversation(pair, side)) for side in SIDES)
    return ScoreBatch(key=pair["pair_id"], requests=tuple(requests))
