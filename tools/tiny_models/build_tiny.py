"""Trains the tiny world's models from scratch: tokenizer, M_0, reward model, measures, card.

python tools/tiny_models/build_tiny.py OUT --seed 7
"""

import argparse
import copy
import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tiny_measures import Measurements, measure
from tiny_tokens import train_tokenizer
from tiny_training import BATCH, LoopProgress, train_policy, train_reward

from lpfloop.loop.tiny.nouns import TASKS
from lpfloop.loop.tiny.people import MISREMEMBERED
from lpfloop.loop.tiny.world import SEED, prompts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

POLICY_STEPS = 1_800
REWARD_STEPS = 250
FEWEST_STEPS = 8
CARD = "MODEL_CARD.md"
READABLE = 0o644


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The report of a build: sizes, lessons, duration, and measurements."""

    policy: Path
    reward: Path
    seed: int
    scale: float
    policy_parameters: int
    reward_parameters: int
    policy_lessons: int
    reward_pairs: int
    policy_loss: float
    reward_loss: float
    seconds: float
    bytes: int
    measurements: Measurements


def build(
    output: Path,
    *,
    seed: int = SEED,
    scale: float = 1.0,
    threads: int | None = None,
    watch: Callable[[LoopProgress], None] | None = None,
) -> BuildReport:
    """Build M_0 and the reward model into `output`, measure them and write the model card.

    Args:
        output: the folder that gets `policy/`, `reward/` and the model card.
        seed: decides the lessons, their order and the first weights.
        scale: share of the full training and measuring; less than 1 for tests.
        threads: how many threads torch may use; its own choice if None.
        watch: is called at every training step.
    """
    import torch

    began = time.monotonic()
    if threads is not None:
        torch.set_num_threads(threads)
    losses: dict[str, float] = {}

    def note(progress: LoopProgress) -> None:
        losses[progress.stage] = progress.loss
        if watch is not None:
            watch(progress)

    policy_steps = max(FEWEST_STEPS, round(POLICY_STEPS * scale))
    reward_steps = max(FEWEST_STEPS, round(REWARD_STEPS * scale))
    tokenizer = train_tokenizer(seed)
    policy = train_policy(tokenizer, seed=seed, steps=policy_steps, watch=note)
    reward = train_reward(policy, tokenizer, seed=seed, steps=reward_steps, watch=note)
    save(policy, tokenizer, output / "policy")
    save(reward, tokenizer, output / "reward")
    held_out = prompts("held-out", seed=seed)
    shown = held_out[: max(2 * len(TASKS), round(len(held_out) * min(scale, 1.0)))]
    report = BuildReport(
        policy=output / "policy",
        reward=output / "reward",
        seed=seed,
        scale=scale,
        policy_parameters=policy.num_parameters(),
        reward_parameters=reward.num_parameters(),
        policy_lessons=policy_steps * BATCH,
        reward_pairs=reward_steps * BATCH // 2,
        policy_loss=losses["policy"],
        reward_loss=losses["reward"],
        measurements=measure(policy, reward, tokenizer, shown, seed=seed),
        seconds=time.monotonic() - began,
        bytes=sum(
            f.stat().st_size for name in ("policy", "reward") for f in (output / name).iterdir()
        ),
    )
    (output / CARD).write_text(card(report), encoding="utf-8")
    return report


def save(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    """Write a model in half precision (it is trained and loaded in single) with its tokenizer."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    half = cast("Any", copy.deepcopy(model)).to(torch.float16)
    half.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    for file in folder.iterdir():
        # safetensors makes files readable by their owner only; the models are for everyone.
        file.chmod(READABLE)


def card(report: BuildReport) -> str:
    """Write the model card."""
    m = report.measurements
    rows = [
        ("M_0, greedy", m.greedy),
        ("M_0, sampled at temperature 1", m.sampled),
        ("sampled answers without any fault", m.sampled_right),
        ("of these answers, refined after M_0's own critique, without any fault", m.refined),
        ("critic right about sampled answers, with reference", m.critic_with_reference),
        ("critic right about sampled answers, without reference", m.critic_without_reference),
        ("mean tokens of a greedy answer", m.mean_tokens),
        ("reward model prefers what people prefer", m.reward_pairs),
        ("reward model prefers the friendly of two equal answers", m.reward_style),
        ("reward model prefers the correct of two answers in the same style", m.reward_correct),
    ]
    table = "\n".join(
        f"| {name} | " + " | ".join(f"{values[task]:.3f}" for task in TASKS) + " |"
        for name, values in rows
    )
    numbers = {k: v for k, v in dataclasses.asdict(report).items() if k != "measurements"}
    numbers |= {"policy": "policy", "reward": "reward"}
    return f"""# The tiny world's models

Two small Llama-architecture models, trained from scratch by
`tools/tiny_models/build_tiny.py` on text that `loop/tiny` generates. They are made to show a
feedback loop at work in minutes on two CPU cores and are of no other use. They were trained in
float32 and are stored in float16: load them with `dtype=float32`.

- `policy/`: M_0, {report.policy_parameters:,} parameters. It answers, criticises (with and
  without a reference) and refines. Its demonstrations were of mixed quality: it can do the work,
  and has careless habits. Without a reference it judges facts by a memory that is wrong of
  {MISREMEMBERED:.0%} of them, always the same.
- `reward/`: a reward model, {report.reward_parameters:,} parameters, one score on the last token,
  trained on preference pairs that over-value a friendly style, and were made all but blind to
  arithmetic.

Seed {report.seed}; {report.policy_lessons:,} lessons for M_0 (drawn without end from the
training part of the world: answers, critiques with and without reference, reflections),
{report.reward_pairs:,}
preference pairs for the reward model; {report.seconds / 60:.1f} minutes; {report.bytes:,} bytes.

Measured on held-out prompts (facts: share of sentences that stand in the abstract; otherwise share
of prompts):

| | math | facts | general |
| --- | --- | --- | --- |
{table}

Share of friendly openers: {m.friendly:.3f}. Share of critiques that end in a dictionary:
{m.critic_readable:.3f}.

```json
{json.dumps(numbers, indent=2)}
```
"""


def watch(progress: LoopProgress) -> None:
    """Print the loss after every 50 steps."""
    if progress.step % 50 == 0 or progress.step == progress.steps:
        print(f"{progress.stage} {progress.step}/{progress.steps}  loss {progress.loss:.3f}")


def main() -> None:
    """Build the models into a new folder, and print their card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--share", type=float, default=1.0, help="share of the training steps")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True)
    build(asked.output, seed=asked.seed, scale=asked.share, watch=watch)
    print((asked.output / CARD).read_text())


if __name__ == "__main__":
    main()
