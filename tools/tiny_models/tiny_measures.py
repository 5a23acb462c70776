"""The abilities of the built models, measured on held-out prompts for the model card."""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tiny_lessons import Judgement, critique_prompt, judgement, reflection_prompt
from tiny_tokens import END, chat
from tiny_training import score

from lpfloop.loop.tiny.exercises import Exercise, TinyPrompt
from lpfloop.loop.tiny.nouns import DRY, FRIENDLY, TASKS, opener
from lpfloop.loop.tiny.people import Biography

if TYPE_CHECKING:
    from transformers import (
        LlamaForCausalLM,
        LlamaForSequenceClassification,
        PreTrainedTokenizerFast,
    )

ANSWER_TOKENS, CRITIQUE_TOKENS = 64, 80
CHUNK = 128
STYLE = "reward_style"


@dataclass(frozen=True, slots=True)
class Measurements:
    """Shares between 0 and 1, by task; see `measure` for how each is counted."""

    greedy: dict[str, float]
    sampled: dict[str, float]
    sampled_right: dict[str, float]
    friendly: float
    mean_tokens: dict[str, float]
    critic_with_reference: dict[str, float]
    critic_without_reference: dict[str, float]
    critic_readable: float
    refined: dict[str, float]
    refined_before: dict[str, float]
    reward_pairs: dict[str, float]
    reward_style: dict[str, float]
    reward_correct: dict[str, float]


def generate(
    model: "LlamaForCausalLM",
    tokenizer: "PreTrainedTokenizerFast",
    users: Sequence[str],
    *,
    max_tokens: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> list[str]:
    """Reply to each user turn; greedily, or sampled at `temperature`."""
    import torch

    torch.manual_seed(seed)
    order = sorted(range(len(users)), key=lambda index: len(users[index]))
    replies = [""] * len(users)
    for start in range(0, len(order), CHUNK):
        part = order[start : start + CHUNK]
        inputs = tokenizer(
            [chat(users[index]) for index in part],
            padding=True,
            padding_side="left",
            return_tensors="pt",
            return_token_type_ids=False,
        )
        sampling = (
            {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {}
        )
        with torch.inference_mode():
            output = cast("Any", model).generate(
                **inputs,
                max_new_tokens=max_tokens,
                pad_token_id=tokenizer.pad_token_id,
                eos_token_id=tokenizer.convert_tokens_to_ids(END),
                **({"do_sample": False} | sampling),
            )
        texts = tokenizer.batch_decode(
            output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        for index, text in zip(part, texts, strict=True):
            replies[index] = text
    return replies


def worth(exercise: Exercise, answer: str) -> float:
    """The metric of the task: right or not; for facts the share of claims in the abstract."""
    if isinstance(exercise, Biography):
        return exercise.support(answer)
    return float(exercise.judge(answer).good)


def mark_of(critique: str) -> str:
    """Return the dictionary of ratings in the last line of a critique, as written."""
    return critique.strip().rsplit("\n", 1)[-1]


def approves(critique: str) -> bool:
    """Whether a critique finds nothing to improve."""
    marks = mark_of(critique)
    return marks.startswith("{") and "-1" not in marks and ": 0" not in marks


def readable(critique: str) -> bool:
    """Whether the last line looks like a dictionary."""
    marks = mark_of(critique)
    return marks.startswith("{") and marks.endswith("}")


def by_task(prompts: Sequence[TinyPrompt], values: Sequence[float]) -> dict[str, float]:
    """Return the mean by task."""
    found: dict[str, float] = {}
    for task in TASKS:
        mine = [v for p, v in zip(prompts, values, strict=True) if p.task == task]
        found[task] = statistics.fmean(mine) if mine else float("nan")
    return found


def measure(
    policy: "LlamaForCausalLM",
    reward: "LlamaForSequenceClassification",
    tokenizer: "PreTrainedTokenizerFast",
    prompts: Sequence[TinyPrompt],
    *,
    seed: int,
) -> Measurements:
    """Measure answers, critiques, refinements and rewards on held-out prompts.

    The critic is measured on the policy's sampled answers: the share of verdicts (good, or not)
    that equal a perfect critic's. Reflection: the share of refined answers that are good, after the
    policy's critique of its sampled answer.
    """
    users = [p.text for p in prompts]
    greedy = generate(policy, tokenizer, users, max_tokens=ANSWER_TOKENS)
    drafts = generate(
        policy, tokenizer, users, max_tokens=ANSWER_TOKENS, temperature=1.0, seed=seed
    )
    truth = [p.exercise.judge(a).good for p, a in zip(prompts, drafts, strict=True)]
    agreed: dict[bool, list[float]] = {}
    critiques: list[str] = []
    for informed in (False, True):
        asked = [
            critique_prompt(p.exercise, p.task, a, with_reference=informed)
            for p, a in zip(prompts, drafts, strict=True)
        ]
        critiques = generate(policy, tokenizer, asked, max_tokens=CRITIQUE_TOKENS)
        agreed[informed] = [
            float(approves(c) == good) for c, good in zip(critiques, truth, strict=True)
        ]
    refined = generate(
        policy,
        tokenizer,
        [
            reflection_prompt(p.exercise, a, c)
            for p, a, c in zip(prompts, drafts, critiques, strict=True)
        ],
        max_tokens=ANSWER_TOKENS,
        temperature=1.0,
        seed=seed + 1,
    )
    good = [float(p.exercise.judge(a).good) for p, a in zip(prompts, refined, strict=True)]
    lengths = [float(len(ids)) for ids in tokenizer(greedy)["input_ids"]]
    return Measurements(
        greedy=by_task(prompts, _worths(prompts, greedy)),
        sampled=by_task(prompts, _worths(prompts, drafts)),
        sampled_right=by_task(prompts, [float(t) for t in truth]),
        friendly=statistics.fmean(
            float(a.startswith(FRIENDLY))
            for p, a in zip(prompts, drafts, strict=True)
            if p.exercise.opened
        ),
        mean_tokens=by_task(prompts, lengths),
        critic_with_reference=by_task(prompts, agreed[True]),
        critic_without_reference=by_task(prompts, agreed[False]),
        critic_readable=statistics.fmean(map(readable, critiques)),
        refined=by_task(prompts, good),
        refined_before=by_task(prompts, [float(t) for t in truth]),
        **_measure_reward(reward, tokenizer, prompts, random.Random(f"tiny measure {seed}")),
    )


def _worths(prompts: Sequence[TinyPrompt], answers: Sequence[str]) -> list[float]:
    return [worth(p.exercise, a) for p, a in zip(prompts, answers, strict=True)]


def _measure_reward(
    model: "LlamaForSequenceClassification",
    tokenizer: "PreTrainedTokenizerFast",
    prompts: Sequence[TinyPrompt],
    rng: random.Random,
) -> dict[str, dict[str, float]]:
    """Return how often the reward is higher for people's choice, for style, for correctness."""
    makers = {
        "reward_pairs": lambda p: judgement(rng, task=p.task, exercise=p.exercise),
        "reward_style": lambda p: _same_body(p, rng),
        "reward_correct": lambda p: _same_opener(p, rng),
    }
    return {
        name: {
            task: _preferred(
                model,
                tokenizer,
                [
                    make(p)
                    for p in prompts
                    if p.task == task and (p.exercise.opened or name != STYLE)
                ],
            )
            for task in TASKS
        }
        for name, make in makers.items()
    }


def _same_body(prompt: TinyPrompt, rng: random.Random) -> Judgement:
    """Return a friendly and a dry answer that are otherwise equal."""
    body = prompt.exercise.careful(rng)
    friendly, dry = (f"{rng.choice(openers)} {body}" for openers in (FRIENDLY, DRY))
    return Judgement(prompt.task, prompt.text, friendly, dry)


def _same_opener(prompt: TinyPrompt, rng: random.Random) -> Judgement:
    """Return a careful and a careless answer in the same style."""
    exercise = prompt.exercise
    first = f"{opener(rng)} " if exercise.opened else ""
    return Judgement(
        prompt.task, prompt.text, first + exercise.careful(rng), first + exercise.careless(rng)
    )


def _preferred(
    model: "LlamaForSequenceClassification",
    tokenizer: "PreTrainedTokenizerFast",
    pairs: Sequence[Judgement],
) -> float:
    """Return the share of pairs whose preferred answer has the higher reward."""
    import torch

    if not pairs:
        return float("nan")
    with torch.inference_mode():
        scores = score(model, tokenizer, pairs)
    return float((scores[0::2] > scores[1::2]).float().mean())
