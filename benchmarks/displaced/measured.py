# pyright: basic
"""A policy's log-probability of each token of the answers in pairs, and its greedy answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import torch

TOGETHER = 220
"""Sequences of a forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenPair:
    """The token ids of a pair; `shared`: tokens of each answer that the other contains, too.

    `prefix` counts the tokens with which both answers begin.
    """

    task: str
    family: str
    prompt: list[int]
    answers: tuple[list[int], list[int]]
    shared: tuple[list[bool], list[bool]]
    prefix: int


def spoken(row: Mapping[str, Any], task: str, family: str, tokenizer: Any) -> SpokenPair:
    """Return the token ids of a pair of the lake."""
    render = tokenizer.apply_chat_template
    prompt = render(row["prompt"], add_generation_prompt=True, return_dict=False)
    sides = [
        render([*row["prompt"], *row[side]], return_dict=False)[len(prompt) :]
        for side in ("chosen", "rejected")
    ]
    shared = [[False] * len(side) for side in sides]
    for block in SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks():
        for side, start in ((0, block.a), (1, block.b)):
            shared[side][start : start + block.size] = [True] * block.size
    differing = [a != b for a, b in zip(*sides, strict=False)]
    prefix = differing.index(True) if True in differing else len(differing)
    return SpokenPair(
        task=task,
        family=family,
        prompt=prompt,
        answers=(sides[0], sides[1]),
        shared=(shared[0], shared[1]),
        prefix=prefix,
    )


@torch.inference_mode()
def token_logprobs(model: Any, pairs: Sequence[SpokenPair]) -> list[tuple[torch.Tensor, ...]]:
    """Return the log-probability of each token of each pair's two answers."""
    todo = [(n, side) for n in range(len(pairs)) for side in (0, 1)]
    whole = {(n, s): [*pairs[n].prompt, *pairs[n].answers[s]] for n, s in todo}
    todo.sort(key=lambda place: len(whole[place]))
    found: dict[tuple[int, int], torch.Tensor] = {}
    for start in range(0, len(todo), TOGETHER):
        part = todo[start : start + TOGETHER]
        longest = max(len(whole[place]) for place in part)
        ids = torch.tensor([whole[p] + [0] * (longest - len(whole[p])) for p in part])
        logits = model(input_ids=ids).logits[:, :-1].float()
        told = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
        for place, line in zip(part, told, strict=True):
            begin = len(pairs[place[0]].prompt) - 1
            found[place] = line[begin : begin + len(pairs[place[0]].answers[place[1]])].clone()
    return [(found[n, 0], found[n, 1]) for n in range(len(pairs))]


def summary(pairs: Sequence[SpokenPair], told: Sequence[tuple[torch.Tensor, ...]]) -> list[Any]:
    """Return, for each pair and side: nats, tokens, nats of prefix, shared and other tokens."""
    rows: list[Any] = []
    for pair, sides in zip(pairs, told, strict=True):
        of_pair: list[list[float]] = []
        for side, line in enumerate(sides):
            shared = torch.tensor(pair.shared[side])
            of_pair.append(
                [
                    float(line.sum()),
                    len(line),
                    float(line[: pair.prefix].sum()),
                    float(line[shared].sum()),
                    float(line[~shared].sum()),
                ]
            )
        rows.append(of_pair)
    return rows


@torch.inference_mode()
def greedy(model: Any, tokenizer: Any, prompts: Sequence[list[int]], most: int) -> list[str]:
    """Return the greedy answer to each prompt, of at most so many tokens."""
    order = sorted(range(len(prompts)), key=lambda n: len(prompts[n]))
    answers = [""] * len(prompts)
    for start in range(0, len(order), TOGETHER):
        part = order[start : start + TOGETHER]
        longest = max(len(prompts[n]) for n in part)
        padding = [longest - len(prompts[n]) for n in part]
        ids = torch.tensor(
            [[tokenizer.pad_token_id] * p + prompts[n] for n, p in zip(part, padding, strict=True)]
        )
        mask = torch.tensor([[0] * p + [1] * (longest - p) for p in padding])
        told = model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=most, do_sample=False,
            pad_token_id=tokenizer.pad_token_id, temperature=None, top_p=None, top_k=None,
        )  # fmt: skip
        texts = tokenizer.batch_decode(told[:, longest:], skip_special_tokens=True)
        for n, text in zip(part, texts, strict=True):
            answers[n] = text.strip()
    return answers
