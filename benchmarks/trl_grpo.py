# pyright: basic
"""GRPO of lpfloop and of TRL: the share of held-out prompts verified after the same training.

Both start from the tiny policy, draw 4 answers to each of 16 prompts a step, and reward an answer
with 1 if the verifier finds it right. Their formulas are equal, too: the loss of Eq. 3 in
DeepSeekMath with beta 0.02, advantages divided by their group's deviation, two updates a step, a
constant rate of 2e-4. TRL has no rule for answers without an end. One function measures all
policies: greedy answers to the tiny world's held-out prompts.

    python benchmarks/trl_grpo.py --steps 38 --seeds 501 502 503
"""

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

import lpfloop
from lpfloop.critics.verify import Verifier
from lpfloop.loop.data.prompts import tiny_prompts

POLICY = Path(lpfloop.__file__).parent / "loop" / "tiny" / "models" / "policy"
PROMPTS, GROUP, UPDATES, RATE, BETA, TOKENS = 16, 4, 2, 2e-4, 0.02, 64
BATCH = PROMPTS * GROUP // UPDATES
SETTINGS = {
    "recipe.rewards": {"verifier": 1.0, "critic": 0.0},
    "policy.engine.kind": "transformers",
    "prompts.max_test": 30,
    "prompts.max_dev": 30,
    "training.grpo.choose": "last",
    "verdict.on_regression": "continue",
}


def by_split(split: str) -> dict[str, Any]:
    """Return the tiny world's prompts of a split, by their texts."""
    return {p.messages[0].content: p for p in tiny_prompts() if p.split == split}


def verified(folder: Path, verifier: Verifier) -> float:
    """Return the share of held-out prompts whose greedy answers the verifier finds right."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    prompts = list(by_split("held-out").values())
    ratings = list[float | None]()
    for first in range(0, len(prompts), 64):
        part = prompts[first : first + 64]
        turns = [[{"role": "user", "content": p.messages[0].content}] for p in part]
        texts = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        asked = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.inference_mode():
            drawn = model.generate(**asked, max_new_tokens=TOKENS, do_sample=False)
        answers = tokenizer.batch_decode(
            drawn[:, asked["input_ids"].shape[1] :], skip_special_tokens=True
        )
        ratings += [v.rating for v in verifier.verify(list(zip(part, answers, strict=True)))]
    rated = [rating for rating in ratings if rating is not None]
    return sum(rating == 1 for rating in rated) / len(rated)


def train_by_trl(folder: Path, steps: int, seed: int, verifier: Verifier) -> Path:
    """Train by TRL's GRPO; return the policy's folder."""
    train = by_split("train")

    def reward(prompts: list[Any], completions: list[Any], **_: Any) -> list[float]:
        items = [
            (train[prompt[-1]["content"]], answer[0]["content"])
            for prompt, answer in zip(prompts, completions, strict=True)
        ]
        return [float(verdict.rating == 1) for verdict in verifier.verify(items)]

    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32),
        reward_funcs=reward,
        processing_class=AutoTokenizer.from_pretrained(POLICY, padding_side="left"),
        train_dataset=Dataset.from_dict(
            {"prompt": [[{"role": "user", "content": text}] for text in train]}
        ),
        args=GRPOConfig(
            output_dir=str(folder / "work"),
            seed=seed,
            per_device_train_batch_size=BATCH,
            steps_per_generation=UPDATES,
            num_generations=GROUP,
            max_completion_length=TOKENS,
            max_steps=steps * UPDATES,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            loss_type="grpo",
            beta=BETA,
            temperature=1.0,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))
    return folder / "model"


def train_by_lpfloop(folder: Path, steps: int, seed: int) -> Path:
    """Train by the recipe `grpo`; return the policy's folder."""
    settings = {**SETTINGS, "training.grpo.max_steps": steps}
    run = lpfloop.run(
        "tiny", recipe="grpo", iterations=1, name="grpo", seed=seed, lake=folder / "lake",
        set=settings, display="none",
    )  # fmt: skip
    with run:
        return Path(run.model("M_1").place)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=38)
    parser.add_argument("--seeds", type=int, nargs="+", default=[501, 502, 503])
    args = parser.parse_args()
    shares: dict[str, list[float]] = {"lpfloop": [], "TRL": []}
    print("| seed | M_0 | lpfloop | TRL |\n| --- | --- | --- | --- |")
    with Verifier(sentence_match=True) as verifier:
        before = verified(POLICY, verifier)
        for seed in args.seeds:
            with tempfile.TemporaryDirectory() as place:
                made = {
                    "lpfloop": train_by_lpfloop(Path(place), args.steps, seed),
                    "TRL": train_by_trl(Path(place), args.steps, seed, verifier),
                }
                for name, folder in made.items():
                    shares[name].append(verified(folder, verifier))
            last = " | ".join(f"{found[-1]:.1%}" for found in shares.values())
            print(f"| {seed} | {before:.1%} | {last} |", flush=True)
    means = " | ".join(f"{statistics.mean(found):.1%}" for found in shares.values())
    print(f"| mean | {before:.1%} | {means} |")


if __name__ == "__main__":
    main()
