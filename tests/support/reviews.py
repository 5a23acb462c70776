"""Scripted judges of prompts, and prompts of which they dislike some."""

import json
import re
from pathlib import Path

from lpfloop.critics.quality.prompt_review import ASPECTS
from lpfloop.loop.tiny.reviewer import reviewer
from lpfloop.policies.engines.engine import Request, Sampling

GOOD = tuple(f"Tell me about the number {n}." for n in range(8))
BAD = {
    "Hm?": "low_intention",
    "Xqz wrtp klmn pqrs.": "low_semantics",
    "Which numbers will win the lottery?": "low_answerability",
}


def write_prompts(folder: Path, *texts: str) -> Path:
    """Write a prompts file, all of it to train on but for one prompt."""
    path = folder / "prompts.jsonl"
    rows = [{"prompt": text} for text in texts]
    rows.append({"prompt": "Who are you?", "split": "held-out"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def wavering(request: Request, sampling: Sampling) -> str:
    """Find every prompt perfect, three times in four in words that cannot be read."""
    ratings = dict.fromkeys(ASPECTS, 1)
    return json.dumps(ratings) if request.seed % 4 == 0 else "It is a fine text, I think."


def hesitant(request: Request, sampling: Sampling) -> str:
    """Rate like the tiny reviewer; one first reply in two, drawn greedily, says nothing."""
    greedy = sampling.temperature == 0
    return "Hm." if greedy and request.seed % 2 else reviewer(request, sampling)


def silent(request: Request, sampling: Sampling) -> str:
    """Say nothing that can be read."""
    return "That is hard to say."


def digits(request: Request, sampling: Sampling) -> str:
    """Answer with a digit: any to an even number, always the same to an odd one."""
    number = int(re.findall(r"\d+", request.messages[-1].content + " 1")[0])
    return str(request.seed % 10) if number % 2 == 0 else "7"
