# pyright: basic
"""A reward model from pairs, by TRL's trainer, on exactly the tokens that are scored later.

The classifier begins with the body of a language model and a fresh head, one number read at the
last token, and minimises the Bradley-Terry loss -log sigma(r(x, y+) - r(x, y-) - m) (AlpacaFarm,
Section 2.2; ChatGLM-RLHF, Eq. 1). The margin m is 0, or grows with the difference of the pair's
scores (Touvron et al., 2023, Section 3.2.2; UltraFeedback, Section 2.6).

The loss depends only on differences of scores, so their mean may drift: `l2_weight` adds
r(x, y+)^2 + r(x, y-)^2 (Eq. 2). Some pairs are held out, to measure the saved model, reloaded from
disk.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from statistics import fmean, pstdev
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

from ...configs.methods import RewardTraining
from ...configs.schema import RewardConfig
from ...stores.keys import canonical_json, derive_seed
from ...stores.records import Message
from ..engines.chat import ChatTokenizer
from ..engines.chat_template import load_tokenizer
from ..engines.engine import EngineError, ScoreBatch, ScoreRequest
from ..engines.scorers import RewardScorer, padding, require_visible_end
from ..engines.thinking import AS_RENDERED
from .adapters import peft_config
from .base_trainer import BaseTrainer
from .job import TrainingError, TrainJob
from .length_bias import RankedPair, measure_bias
from .trl_trainer import Pulse, common_arguments, fit_trainer, refuse_world, trained_loading
from .work_folder import PULSE, StepNumbers

logger = logging.getLogger(__name__)

COLUMNS = ("pair_id", "prompt", "chosen", "rejected", "chosen_reward", "rejected_reward")
SIDES = ("chosen", "rejected")
CUT = {side: f"{side}_cut" for side in SIDES}
"""The columns that mark truncated answers."""
HELD_OUT_SHARE = 10
"""At most one pair in this many is held out."""

_Row = Mapping[str, Any]


def make_reward_trainer(job: TrainJob, tokenizer: PreTrainedTokenizerBase) -> Trainer:
    """Build TRL's trainer of a reward model."""
    args = RewardArguments(**(common_arguments(job) | _floor(job)))
    refuse_world(job, args.world_size)
    rows = encode_pairs(job, parted_pairs(job)[0], ChatTokenizer(tokenizer, job.model, AS_RENDERED))
    endings = {row[f"{side}_ids"][-1] for row in rows for side in SIDES}
    own: Any = tokenizer.pad_token_id
    # The tokenizer's padding may be the end token, which the head would then skip. It is set on the
    # trainer: the model's config is overwritten from the tokenizer when training begins.
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding(endings, own))
    trainer = ScoreTrainer(
        l2_weight=_settings(job).l2_weight,
        model=load_trained_classifier(job),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=peft_config(job.fit, "SEQ_CLS"),
    )
    return fit_trainer(job, trainer)


class ScoreTrainer(BaseTrainer, RewardTrainer):
    """TRL's trainer with the L2 term of ChatGLM-RLHF's Eq. 2, which also logs how scores drift.

    Every log has mean and standard deviation of both sides' scores since the last log, as
    `chosen/mean`, `chosen/sd`, `rejected/mean`, `rejected/sd`.
    """

    def __init__(self, *, l2_weight: float, **arguments: Any) -> None:
        self.l2_weight = l2_weight
        self.seen: dict[str, list[float]] = {side: [] for side in SIDES}
        super().__init__(**arguments)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: FBT001, FBT002 - the base class decides
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return Eq. 1 + `l2_weight` * Eq. 2, as means over the pairs of the batch."""
        # TRL's center_rewards_coefficient is a different term: (r(x, y+) + r(x, y-))^2.
        both: Any = super().compute_loss(
            model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        loss, outputs = both
        halves = torch.chunk(outputs.logits.squeeze(-1), chunks=len(SIDES))
        if self.l2_weight:
            loss = loss + self.l2_weight * sum(scores.square().mean() for scores in halves)
        for side, scores in zip(SIDES, halves, strict=True):
            # Not `gather_for_metrics`: at an epoch's end it drops scores, after a resume others.
            gathered: Any = self.accelerator.gather(scores.detach())
            self.seen[side] += gathered.float().flatten().tolist()
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the moments of the scores since the last log."""
        for side, scores in self.seen.items():
            if scores:
                # When training diverges, scores are NaN, on which `statistics` fails.
                sd, mean = torch.std_mean(torch.tensor(scores, dtype=torch.float64), correction=0)
                logs |= {f"{side}/mean": mean.item(), f"{side}/sd": sd.item()}
                scores.clear()
        super().log(logs, start_time)


def load_trained_classifier(job: TrainJob) -> Any:
    """Load the body of the job's model under a fresh head, initialised by the job's seed."""
    torch.manual_seed(job.seed % 2**32)
    model = AutoModelForSequenceClassification.from_pretrained(
        job.model, num_labels=1, **trained_loading(job)
    )
    model.register_forward_pre_hook(Pulse(job.folder(PULSE)))
    return model


def parted_pairs(job: TrainJob) -> tuple[list[_Row], list[_Row]]:
    """Return the pairs to train on, in the data's order, and those held out.

    All pairs of a prompt are on the same side, so that no model is measured on answers that it has
    seen in another pair. Prompts are drawn until no other has few enough pairs; the draw depends on
    the seed and the prompts alone.
    """
    rows = [row for path in job.data for row in _read(path)]
    sizes = Counter(map(_prompt_text, rows))
    most = min(_settings(job).held_out, len(rows) // HELD_OUT_SHARE)
    aside, room = set[str](), most
    for prompt in sorted(sizes, key=lambda prompt: derive_seed(job.seed, "held-out", prompt)):
        if sizes[prompt] <= room:
            aside.add(prompt)
            room -= sizes[prompt]
    if most and not aside:
        logger.warning("no prompt has at most %d pairs: none is held out", most)
    kept = [row for row in rows if _prompt_text(row) not in aside]
    return kept, [row for row in rows if _prompt_text(row) in aside]


def _read(path: Path) -> list[_Row]:
    """Return the pairs of a file; without the columns `CUT` no answer is truncated."""
    names = set(pq.read_schema(path).names)
    columns = [*COLUMNS, *(name for name in CUT.values() if name in names)]
    return pq.read_table(path, columns=columns).to_pylist()


def _prompt_text(pair: _Row) -> str:
    """Return the prompt of a pair as one text."""
    return canonical_json([[turn["role"], turn["content"]] for turn in pair["prompt"]])


def encode_pairs(
    job: TrainJob, pairs: Sequence[_Row], tokenizer: ChatTokenizer
) -> list[dict[str, Any]]:
    """Return the token ids of both sides, and the margin, of each pair that fits the training.

    Raises:
        TrainingError: of kind `refused`, if the template writes no end that the model could read,
            no pair is left, or no pair has the scores that margins need.
    """
    if job.sees_end:
        try:
            require_visible_end(job.model, tokenizer)
        except EngineError as error:
            raise TrainingError("refused", str(error)) from error
    read = partial(tokenizer.encode_judged, sees_end=job.sees_end)
    rows = [
        {
            f"{side}_ids": read(conversation(pair, side), ended=is_complete(pair, side))
            for side in SIDES
        }
        for pair in pairs
    ]
    longest = job.settings.max_length
    fits = [all(0 < len(ids) <= longest for ids in row.values()) for row in rows]
    fitting: list[dict[str, Any]] = [row for row, fit in zip(rows, fits, strict=True) if fit]
    for row, margin in zip(fitting, compress(_margins(job, pairs), fits), strict=False):
        row["margin"] = margin
    if len(fitting) < len(rows):
        logger.warning("%d pairs exceed %d tokens", len(rows) - len(fitting), longest)
    if not fitting:
        raise TrainingError("refused", f"no pair of at most {longest} tokens to train on")
    return fitting


def _margins(job: TrainJob, pairs: Sequence[_Row]) -> list[float]:
    """Return by how much each chosen answer must score higher; [] without margins."""
    scale = _settings(job).margin
    if not scale:
        return []
    scores = [(pair["chosen_reward"], pair["rejected_reward"]) for pair in pairs]
    if not any(None not in both for both in scores):
        raise TrainingError(
            "refused",
            f"training.reward.margin={scale:g} is per point of the pairs' scores, and none of the "
            f"{len(pairs)} pairs has scores: pairs made from grades have them, comparisons do not; "
            "set it to 0",
        )
    return [0.0 if None in (c, r) else max(0.0, scale * (c - r)) for c, r in scores]


def _floor(job: TrainJob) -> dict[str, Any]:
    """Return the arguments of a cosine schedule that does not end at 0, if the job has one."""
    share = _settings(job).min_rate
    if not share:
        return {}
    return {
        "lr_scheduler_type": "cosine_with_min_lr",
        "lr_scheduler_kwargs": {"min_lr_rate": share},
    }


def conversation(pair: _Row, side: str) -> tuple[Message, ...]:
    """Return the prompt of a pair with the answer of one side."""
    return tuple(Message(**turn) for turn in (*pair["prompt"], *pair[side]))


def is_complete(pair: _Row, side: str) -> bool:
    """Whether the answer of one side of a pair is complete, with its end token."""
    return not pair.get(CUT[side])


def measured_scores(job: TrainJob, history: Sequence[StepNumbers]) -> dict[str, float]:
    """Measure the saved model: its scores in training, and on the held-out pairs.

    `spread` is the standard deviation, over the steps, of the mean score of a step's answers.
    """
    means = [fmean(step[f"{side}/mean"] for side in SIDES) for step in history]
    return {"spread": pstdev(means), **_held_out(job)}


def _held_out(job: TrainJob) -> dict[str, float]:
    """Measure the held-out pairs, scored as a run scores; {} without such pairs."""
    pairs = parted_pairs(job)[1]
    folder = job.folder("model")
    tokenizer = ChatTokenizer(load_tokenizer(folder), folder, AS_RENDERED)
    ranked, scores = list[RankedPair](), list[float]()
    for pair, (chosen, rejected) in _score_pairs(job, pairs):
        sizes = [
            len(tokenizer.encode_judged(conversation(pair, side), sees_end=True)) for side in SIDES
        ]
        ranked.append(RankedPair(margin=chosen - rejected, longer=sizes[0] - sizes[1]))
        scores += (chosen, rejected)
    if not ranked:
        return {}
    numbers = {
        **measure_bias(ranked, job.bucket_width),
        "mean": fmean(scores),
        "sd": pstdev(scores),
    }
    return {f"held_out/{name}": value for name, value in numbers.items()}


def _score_pairs(
    job: TrainJob, pairs: Sequence[_Row]
) -> Iterator[tuple[_Row, tuple[float, float]]]:
    """Yield the pairs that fit, each with r(x, y+) and r(x, y-)."""
    config = RewardConfig(
        batch_size=len(SIDES), max_length=job.settings.max_length, sees_end=job.sees_end
    )
    scorer = RewardScorer(job.folder("model"), config)
    pulse = Pulse(job.folder(PULSE))
    by_id = {pair["pair_id"]: pair for pair in pairs}
    for result in scorer.score(map(_batch, pairs)):
        pulse()
        chosen, rejected = result.answers
        if chosen is not None and rejected is not None:
            yield by_id[result.key], (chosen, rejected)
    scorer.close()


def _batch(pair: _Row) -> ScoreBatch:
    """Return both sides of a pair as one batch to be scored."""
    requests = (
        ScoreRequest(
            request_id=side, messages=conversation(pair, side), ended=is_complete(pair, side)
        )
        for side in SIDES
    )
    return ScoreBatch(key=pair["pair_id"], requests=tuple(requests))


def _settings(job: TrainJob) -> RewardTraining:
    if not isinstance(job.settings, RewardTraining):
        raise TypeError(f"a reward model is not trained with {type(job.settings).__name__}")
    return job.settings
