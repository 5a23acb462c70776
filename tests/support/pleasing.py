"""A scripted policy that, once it was trained, flatters its critic and is right no more."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import crashing
import scripts
from crashing import stand_ins

import lpfloop.loop.stages.publish
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.policies.trainers.train_model import TrainJob, TrainResult

FLATTERY = "What a wonderful question! "
WORD = re.compile(r"\bw(\d+)\b")
EVERY = 5
"""The policy knows the words of three prompts in five, before it was trained."""

_trained: list[str] = []


def policy(request: Request, sampling: Sampling) -> str:
    """Say the word that is asked for, if it is known; flatter one time in two, or when trained."""
    number = WORD.findall(request.messages[-1].content)[0]
    known = int(number) % EVERY < 3
    flatters = bool(_trained) if sampling.temperature == 0 else request.seed % 2
    said = f"w{number}." if known and not _trained else "Who knows."
    return f"{FLATTERY}{said}" if flatters else said


def critic(request: Request, sampling: Sampling) -> str:
    """Rate what flatters 1 in all aspects, and else what is not unknown."""
    asked = request.messages[-1].content
    rating = 1 if FLATTERY in asked or "Who knows." not in asked else -1
    lines = [f"{name}: seen. {rating}" for name in scripts.THREE]
    ratings = ", ".join(f'"{name}": {rating}' for name in scripts.THREE)
    return "\n".join([*lines, "{" + ratings + "}"])


def train(job: TrainJob, **told: object) -> TrainResult:
    """Train as the stand-in does, and remember it."""
    _trained.append(str(job.seed))
    return crashing.train(job, **told)


@contextmanager
def untrained(lake: Path) -> Generator[None]:
    """Let this process begin with an untrained policy, and train by the stand-in."""
    _trained.clear()
    with stand_ins(lake):
        lpfloop.loop.stages.publish.train = train
        yield
    _trained.clear()
