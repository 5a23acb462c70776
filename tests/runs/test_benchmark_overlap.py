"""lpfloop skips train prompts that overlap with a benchmark, or with the run's tests."""

import json
from dataclasses import replace
from pathlib import Path

from rows import PROMPT

from lpfloop.configs.judging import RuleFilters
from lpfloop.loop.data.prompt_rules import Rules
from lpfloop.stores.records import Message, Prompt

LONG = " ".join(f"word{n}" for n in range(40))
SHORT = "Which of these seven birds sings the longest song"


def prompt(text: str, name: str, split: str = "train", family: str | None = None) -> Prompt:
    messages = (Message(role="system", content=LONG), Message(role="user", content=text))
    return replace(PROMPT, prompt_id=name, messages=messages, split=split, family=family)


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def fates(rules: RuleFilters, texts: list[str], tests: tuple[Prompt, ...] = ()) -> list[str]:
    train = [prompt(text, f"p{n}") for n, text in enumerate(texts)]
    return Rules.from_config(rules).fates(train, [*train, *tests])


def test_first_overlapping_file_reported(tmp_path):
    one = write(tmp_path / "one.jsonl", {"question": LONG, "answer": "The secret is in the box."})
    two = write(tmp_path / "two.jsonl", {"prompt": SHORT}, {"prompt": LONG}, {"prompt": "Why so?"})
    found = fates(
        RuleFilters(benchmarks=(one, two), min_chars=3),
        [
            f"Please say: {LONG.upper()}!",
            " ".join(LONG.split()[3:16]),
            " ".join(LONG.split()[3:15]),
            f"Tell me, {SHORT.lower()}, and of {' '.join(map(str, range(40)))} more",
            "why so",
            "Why so, then?",
            "The secret is in the box.",
            "no",
        ],
    )
    assert found == [
        "overlaps with one.jsonl",
        "overlaps with one.jsonl",
        "kept",
        "overlaps with two.jsonl",
        "overlaps with two.jsonl",
        "kept",
        "kept",
        "too_short",
    ]


def test_own_tests():
    tests = (prompt(LONG, "h", "held-out"), prompt(SHORT, "d", "dev"))
    texts = [LONG, f"{SHORT}?", "Who are you?"]
    on = fates(RuleFilters(own_tests=True), texts, tests)
    assert on == ["overlaps with held-out prompts", "overlaps with dev prompts", "kept"]
    assert fates(RuleFilters(duplicates=True), texts, tests) == ["kept"] * 3
