"""Scripted annotators: they read the pairs of a prompt, and answer in the form asked for."""

import re
from pathlib import Path

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.critics.annotators.written_verdicts import reply_of
from lpfloop.policies.engines.engine import Request, Sampling

PAIR = re.compile(
    r'<pair number="(\d+)">.*?<output_1>(.*?)</output_1>\s*<output_2>(.*?)</output_2>', re.DOTALL
)
POOL = """
annotators:
- {name: one, model: strong, template: tiny, form: token, max_tokens: 5}
- {name: many, model: strong, template: tiny, form: json, batch_size: 4, max_tokens: 600}
- {name: list, model: weak, template: tiny, form: ranking, batch_size: 20, max_tokens: 100}
"""
SETTINGS = (
    "recipe.name=dpo",
    "policy.engine.kind=scripted",
    "policy.engine.script=crashing:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=crashing:critic",
    "reward.model=none",
    "prompts.per_iteration=60",
    "prompts.evaluated=12",
    "prompts.deciding=12",
    "prompts.chunk=25",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
    "assessment.oracle=null",
)
FORMS = {'"preferred"': "json", "as a list": "ranking"}


def judged_config(folder: Path, script: str, *overrides: str) -> RunConfig:
    """Return the configuration of a run whose annotators are all played by one function here."""
    pool = folder / "pool.yaml"
    pool.write_text(POOL)
    models = [
        line
        for role in ("strong", "weak")
        for line in (
            f"annotation.{role}.model=tiny",
            f"annotation.{role}.engine.kind=scripted",
            f"annotation.{role}.engine.script=judges:{script}",
        )
    ]
    return load_config(
        "tiny", None, (*SETTINGS, f"annotation.pool={pool}", *models, *overrides), {}
    )


def answered(request: Request, choose) -> str:
    """Answer about each pair with what `choose(first, second, seed)` says of it, or nothing."""
    text = request.messages[-1].content
    form = next((form for sign, form in FORMS.items() if sign in text), "token")
    several = "each pair" in text
    said = [
        (number, choose(first.strip(), second.strip(), request.seed + int(number)))
        for number, first, second in PAIR.findall(text)
    ]
    verdicts = [(number, choice, "because") for number, choice in said if choice is not None]
    return reply_of(form, verdicts, several=several) or "That is hard to say."


def greater(request: Request, sampling: Sampling) -> str:
    """Prefer the text that sorts last, in whatever order the two are shown."""
    return answered(request, lambda first, second, _: "first" if first > second else "second")


def foremost(request: Request, sampling: Sampling) -> str:
    """Prefer what is shown first."""
    return answered(request, lambda *_: "first")


def pattern_following(request: Request, sampling: Sampling) -> str:
    """Prefer what is shown first, in the form of AlpacaFarm's own prompt about some pairs."""
    text = request.messages[-1].content
    last = text.split("Annotation starts below")[-1].split("Now is your turn")[-1]
    size = max(1, len(re.findall(r"### Output \(a\) for example \d+:", last)))
    if "JSON" in request.messages[0].content:
        return "\n".join(['"Output (a) is better than Output (b)": true'] * size)
    word = "(a)" if len(request.messages) == 1 else "Output (a)"
    return "\n".join([word] * size)


def unsure(request: Request, sampling: Sampling) -> str:
    """Decide like `greater`, one time in two not at all."""

    def choose(first: str, second: str, seed: int):
        if seed % 2:
            return None
        return "first" if first > second else "second"

    return answered(request, choose)


def silent(request: Request, sampling: Sampling) -> str:
    """Say nothing that can be read."""
    return "That is hard to say."


def circling(request: Request, sampling: Sampling) -> str:
    """Prefer what has one word more, modulo 3: a over b, b over c, c over a; else say nothing."""

    def choose(first: str, second: str, _: int) -> str | None:
        return {0: None, 1: "first", 2: "second"}[(words(first) - words(second)) % 3]

    return answered(request, choose)


def wordy(request: Request, sampling: Sampling) -> str:
    """Prefer the longer text, three times in four."""

    def choose(first: str, second: str, _: int) -> str:
        longer = words(first) > words(second)
        return "first" if longer == bool((words(first) * words(second)) % 4) else "second"

    return answered(request, choose)


def chinese_answer(request: Request, sampling: Sampling) -> str:
    """Answer in 300 characters, which white space makes one word."""
    return "好" * 300


def words(text: str) -> int:
    """Count them."""
    return len(text.split())
