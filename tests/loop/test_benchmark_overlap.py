"""Train prompts that overlap with a benchmark, or with the run's own tests, are left out."""

import json
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner

from examples import PROMPT
from lpfloop.configs.filters import RuleFilters
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.benchmark_overlap import BenchmarkFile
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


def test_what_holds_a_benchmarks_question_is_left_out_and_the_first_file_is_named(tmp_path):
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


def test_a_benchmarks_template_is_no_overlap(tmp_path):
    frame = "Read the question below with care and answer it with one of the four letters:"
    own = [f"{frame} {' '.join(f'n{n}x{k}' for k in range(20))}" for n in range(20)]
    path = write(tmp_path / "letters.jsonl", *({"prompt": text} for text in own))
    rules = RuleFilters(benchmarks=(path,))
    assert fates(rules, [f"{frame} what is lead?", own[7]]) == [
        "kept",
        "overlaps with letters.jsonl",
    ]


def test_the_runs_own_tests_are_looked_for_if_that_is_asked_for():
    tests = (prompt(LONG, "h", "held-out"), prompt(SHORT, "d", "dev"))
    texts = [LONG, f"{SHORT}?", "Who are you?"]
    on = fates(RuleFilters(own_tests=True), texts, tests)
    assert on == ["overlaps with held-out prompts", "overlaps with dev prompts", "kept"]
    assert fates(RuleFilters(duplicates=True), texts, tests) == ["kept"] * 3


def test_conversations_are_looked_for_by_their_first_turn_and_rows_may_repeat(tmp_path):
    path = write(tmp_path / "mt.jsonl", *[{"turns": [LONG, "And now in verse."]}] * 2)
    (held,) = BenchmarkFile.of(RuleFilters(benchmarks=(path,)))
    assert held.texts == (LONG, LONG)


def test_the_key_depends_on_what_a_file_holds_and_not_on_where_it_lies(tmp_path):
    (tmp_path / "there").mkdir()
    rows = ({"prompt": LONG},)
    paths = [write(tmp_path / name, *rows) for name in ("a.jsonl", "there/a.jsonl")]
    made = [Rules.from_config(RuleFilters(benchmarks=(path,))).params([]) for path in paths]
    assert made[0] == made[1]
    write(tmp_path / "a.jsonl", {"prompt": SHORT})
    assert Rules.from_config(RuleFilters(benchmarks=(paths[0],))).params([]) != made[0]
    bare = Rules.from_config(RuleFilters(min_chars=3)).params([prompt(LONG, "h", "held-out")])
    assert bare == {"rules": RuleFilters(min_chars=3).model_dump(mode="json")}


def test_a_run_tells_beforehand_what_is_left_out_and_refuses_a_file_without_prompts(tmp_path):
    rows = [{"prompt": f"Tell me what {n} and {n} make, and nothing else."} for n in range(30)]
    source = write(tmp_path / "prompts.jsonl", *rows)
    path = write(tmp_path / "bench.jsonl", rows[4], rows[5], rows[6])
    words = ["run", "--lake", str(tmp_path / "lake"), "--prompts", source, "--dry-run"]
    words += ["--set", "prompts.held_out_share=0.1", "--set", "prompts.dev_share=0"]
    words += [
        "--config",
        "tiny",
        "--policy",
        "tiny",
        "--critic",
        "tiny",
        "--set",
        "reward.model=tiny",
    ]
    told = CliRunner().invoke(app, [*words, "--set", f"prompts.rules.benchmarks=[{path}]"])
    assert "are left out by prompts.rules" in told.stdout
    assert "%): overlaps with bench.jsonl" in told.stdout
    bad = write(tmp_path / "bad.jsonl", {"prompt": "One?"}, {"text": 3})
    refused = CliRunner().invoke(app, [*words, "--set", f"prompts.rules.benchmarks=[{bad}]"])
    assert refused.exit_code == 2
    assert f"prompts.rules.benchmarks: {bad}, line 2: " in refused.stderr
    assert not (tmp_path / "lake").exists()
