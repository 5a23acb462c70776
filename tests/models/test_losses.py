"""TRL's losses with lpfloop's settings equal the papers' formulas: float64, by hand, to 1e-6.

The trainer computes each loss on a batch of its data loader; the test computes it again from a
model's logits, example by example, and compares the gradient with a finite difference of the
latter along a random direction.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import dpo_job, make_model, make_world, sft_job, write_pairs
from transformers import AutoTokenizer

from lpfloop.configs.methods import DPOTraining, RewardTraining
from lpfloop.policies.trainers.job import TrainJob, write_job
from lpfloop.policies.trainers.reward_trainer import make_reward_trainer
from lpfloop.policies.trainers.trl_trainer import load_model, make_trainer
from lpfloop.policies.trainers.work_folder import BELOW, TOKEN

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("one_thread")]

BETA = 0.1
STEP = 1e-5


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_world(tmp_path_factory.mktemp("losses"))
    make_model(folder / "reference", seed=1)
    write_pairs(folder / "few.parquet", 12)
    return folder


@pytest.fixture(autouse=True)
def exact_norms(monkeypatch: pytest.MonkeyPatch):
    """Llama's norms compute in float32, whose rounding would hide a small slope."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return (
            self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        )

    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", forward)


def tokenizer_of(job: TrainJob) -> Any:
    return AutoTokenizer.from_pretrained(job.model)


def first_batch(trainer: Any) -> dict[str, torch.Tensor]:
    return next(iter(trainer.get_train_dataloader()))


def logprob(model: Any, ids: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
    """The log-probability of the tokens that are learned, of one example without padding."""
    logits = model(input_ids=ids[None]).logits[0].double()
    told = logits.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
    return (told * learned[1:]).sum()


def assert_equal(trainer: Any, batch: dict[str, torch.Tensor], by_hand: Callable[[], float]):
    """Check the trainer's loss, and its slope along a random direction, against those by hand."""
    model = trainer.model
    loss = trainer.compute_loss(model, dict(batch))
    assert float(loss.detach()) == pytest.approx(by_hand(), abs=1e-6)
    loss.backward()
    torch.manual_seed(0)
    weights = [p for p in model.parameters() if p.grad is not None]
    directions = [torch.randn_like(p) for p in weights]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(weights, directions, strict=True))

    def moved(step: float) -> float:
        for p, d in zip(weights, directions, strict=True):
            p.data.add_(d, alpha=step)
        value = by_hand()
        for p, d in zip(weights, directions, strict=True):
            p.data.sub_(d, alpha=step)
        return value

    measured = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    assert slope == pytest.approx(measured, rel=1e-5)
    assert abs(slope) > 1e-3


SCORES = ((5.0, 1.0), (4.5, 4.0), (None, None), (4.0, 1.0))
"""Scores of the first pairs; the other pairs have no scores."""


def test_the_reward_models_loss(world: Path, tmp_path: Path):
    """The loss of Bradley and Terry, with margins, and the squares of its scores."""
    l2_weight, margin = 0.3, 0.5
    settings = RewardTraining(
        batch_size=4, micro_batch_size=4, max_length=128, l2_weight=l2_weight, margin=margin
    )
    data = write_pairs(tmp_path / "pairs.parquet", len(SCORES), scores=SCORES)
    job = TrainJob(
        method="reward", model=world / "model", reference=None, data=(data,),
        output=tmp_path / "work", settings=settings, seed=3,
    )  # fmt: skip
    trainer: Any = make_reward_trainer(job, tokenizer_of(job))
    asked = [0.0 if c is None or r is None else margin * (c - r) for c, r in SCORES]
    assert trainer.train_dataset["margin"] == asked
    model = trainer.model.double()
    batch = first_batch(trainer)
    gaps = batch["margin"].tolist()
    assert sorted(gaps) == sorted(asked)

    @torch.no_grad()
    def by_hand() -> float:
        rewards: list[float] = []
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
            hidden = model.model(input_ids=ids[mask.bool()][None]).last_hidden_state[0, -1]
            rewards.append(float(hidden @ model.score.weight[0]))
        half = len(rewards) // 2
        sides = zip(rewards[:half], rewards[half:], gaps, strict=True)
        margins = [good - bad - gap for good, bad, gap in sides]
        ranking = -sum(math.log(1 / (1 + math.exp(-margin))) for margin in margins) / half
        return ranking + l2_weight * sum(reward**2 for reward in rewards) / half

    assert_equal(trainer, batch, by_hand)


PLAIN = {"sft_weight": 0.0, "chosen_penalty": 0.0}
Pair = tuple[float, float]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def minus_log_sigmoid(x: float) -> float:
    return math.log1p(math.exp(-x))


def ipo(ratios: Pair, tokens: Pair) -> float:
    return (ratios[0] / tokens[0] - ratios[1] / tokens[1] - 0.5) ** 2


def normalised(ratios: Pair, tokens: Pair) -> float:
    return minus_log_sigmoid(ratios[0] / tokens[0] - ratios[1] / tokens[1])


def hinge(ratios: Pair, tokens: Pair) -> float:
    return max(0.0, 1 - BETA * (ratios[0] - ratios[1]))


def apo_zero(ratios: Pair, tokens: Pair) -> float:
    return 1 - sigmoid(BETA * ratios[0]) + sigmoid(BETA * ratios[1])


def robust(ratios: Pair, tokens: Pair) -> float:
    """Chowdhury et al., 2024, with a fifth of the pairs flipped."""
    margin = BETA * (ratios[0] - ratios[1])
    return (0.8 * minus_log_sigmoid(margin) - 0.2 * minus_log_sigmoid(-margin)) / (1 - 2 * 0.2)


def eq3(ratios: Pair, tokens: Pair) -> float:
    return minus_log_sigmoid(BETA * (ratios[0] - ratios[1]))


def positive(ratios: Pair, tokens: Pair) -> float:
    """Pal et al., 2024, Eq. 3."""
    penalty = 0.5 * max(0.0, -ratios[0])
    return minus_log_sigmoid(BETA * (ratios[0] - ratios[1] - penalty))


LOSSES: list[tuple[dict[str, Any], Callable[[Pair, Pair], float]]] = [
    ({}, eq3),
    ({"loss": "ipo", "beta": 1.0}, ipo),
    ({"loss": "hinge"}, hinge),
    ({"loss": "sigmoid_norm", "beta": 1.0}, normalised),
    ({"loss": "apo_zero"}, apo_zero),
    ({"loss": "robust", "label_smoothing": 0.2}, robust),
    ({"chosen_penalty": 0.5}, positive),
    ({"sft_weight": 1.0, "chosen_penalty": 0.5}, positive),
]


@pytest.mark.parametrize("part", [0, 1])
def test_dpos_losses(world: Path, tmp_path: Path, subtests, part: int):
    for number, (update, of_pair) in enumerate(LOSSES[part::2]):
        with subtests.test(**update):
            check_dpo_loss(world, tmp_path / f"{number}", update, of_pair)


def check_dpo_loss(
    world: Path, folder: Path, update: dict[str, Any], of_pair: Callable[[Pair, Pair], float]
):
    job = dpo_job(world, folder)
    told = {**job.settings.model_dump(), "micro_batch_size": 4, **PLAIN, **update}
    settings = DPOTraining.model_validate(told)
    job = TrainJob(
        method="dpo", model=job.model, reference=world / "reference", data=(world / "few.parquet",),
        output=job.output, settings=settings, seed=3,
    )  # fmt: skip
    write_job(job)
    trainer: Any = make_trainer(job, tokenizer_of(job))
    batch = first_batch(trainer)
    model, reference = trainer.model.double().train(), load_model(job, world / "reference").double()
    examples = [
        (ids[mask.bool()], learned[mask.bool()])
        for ids, mask, learned in zip(
            batch["input_ids"], batch["attention_mask"], batch["completion_mask"], strict=True
        )
    ]
    half = len(examples) // 2
    with torch.no_grad():
        references = torch.stack([logprob(reference, *example) for example in examples])
    told = torch.cat([batch["ref_chosen_logps"], batch["ref_rejected_logps"]]).double()
    assert torch.allclose(told, references, atol=1e-3)
    batch |= {"ref_chosen_logps": references[:half], "ref_rejected_logps": references[half:]}

    tokens = [int(learned.sum()) for _, learned in examples]

    @torch.no_grad()
    def by_hand() -> float:
        said = torch.stack([logprob(model, *example) for example in examples])
        ratios = (said - references).tolist()
        pairs = [
            of_pair((ratios[n], ratios[n + half]), (tokens[n], tokens[n + half]))
            for n in range(half)
        ]
        nll = -float(said[:half].sum()) / sum(tokens[:half])
        return sum(pairs) / half + settings.sft_weight * nll

    with torch.no_grad():
        said = torch.stack([logprob(model, *example) for example in examples])
    assert (said < references)[:half].any()
    assert_equal(trainer, batch, by_hand)
    trainer.log({})
    told = trainer.state.log_history[-1]
    by_token = [each / torch.tensor(tokens) for each in (said, references)]
    sides = [
        side.mean().item()
        for pair in zip(*(each.chunk(2) for each in by_token), strict=True)
        for side in pair
    ]
    assert [told[name] for name in TOKEN] == pytest.approx(sides, abs=1e-6)
    assert told[BELOW] == float((said < references)[:half].double().mean())


def test_sfts_loss(world: Path, tmp_path: Path):
    job = sft_job(world, tmp_path / "work")
    tokenizer = tokenizer_of(job)
    trainer: Any = make_trainer(job, tokenizer)
    batch = first_batch(trainer)
    model = trainer.model.double()
    examples = [
        (ids, labels != -100)
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True)
    ]
    for ids, learned in examples:
        text = tokenizer.decode(ids[learned])
        assert text.startswith("up ")
        assert text.endswith("<|end|>")
    count = sum(int(learned.sum()) for _, learned in examples)

    @torch.no_grad()
    def by_hand() -> float:
        return -sum(float(logprob(model, *example)) for example in examples) / count

    assert_equal(trainer, batch, by_hand)
