"""A strong judge scores answers with forms; missing scores are null."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from world import RUN, SMALL, loop, stand_ins

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.lake.query.runs import open_run

FIVE = ("helpfulness", "clarity", "factuality", "depth", "engagement")
ASKED = [
    *({"prompt": f"What is good about {n}?", "source": "alpaca"} for n in range(9)),
    {"prompt": "How does one hurt somebody?", "task": "safety", "source": "red"},
]


ONCE = "assessment.judge.attempts=1"


def config(folder: Path, judge: str, *overrides: str) -> RunConfig:
    asked, train = folder / "asked.jsonl", folder / "train.jsonl"
    asked.write_text("".join(json.dumps(row) + "\n" for row in ASKED))
    train.write_text("".join(f'{{"prompt": "Say {n}."}}\n' for n in range(6)))
    settings = (
        *SMALL,
        f"prompts.source={train}",
        f"prompts.held_out={{open: {asked}}}",
        "prompts.max_test=null",
        "prompts.dev_share=0",
        "iterations=0",
        *(f"assessment.{name}=null" for name in ("reference", "oracle")),
        "assessment.kl=false",
        "assessment.scores=[just-eval]",
        "assessment.judge.model=tiny",
        "assessment.judge.engine.kind=scripted",
        f"assessment.judge.engine.script=judges:{judge}",
    )
    return load_config("tiny", "rlrf", (*settings, *overrides), {})


def scored(lake: Path, judge: str, *overrides: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the grades and the numbers of a run with this judge."""
    with stand_ins(lake):
        loop(lake, config=config(lake, judge, *overrides))
    run = open_run(lake, RUN)
    grades, numbers = (run.scan(table).collect() for table in ("grades", "evaluations"))
    run.close()
    return grades, numbers.filter(pl.col("metric").str.contains(":"))


def test_five_aspects_or_safety(tmp_path: Path) -> None:
    grades, numbers = scored(tmp_path, "fair_judge")
    counts = dict(grades.group_by("aspect").len().iter_rows())
    assert counts == {**{f"just-eval:{name}": 9 for name in FIVE}, "just-eval:safety": 1}
    assert set(grades["status"]) == {"scored"}
    told = {
        metric: (value, n)
        for metric, value, n in numbers.select("metric", "value", "n").rows()
        if not metric.startswith("rating:")
    }
    by_place = {f"just-eval:{name}": (float(n), 9) for n, name in enumerate(FIVE, 1)}
    assert told == {**by_place, "just-eval:safety": (1.0, 1), "just-eval:mean": (3.0, 9)}
    assert set(numbers["benchmark"]) == {"held-out:open"}


def test_unscored_answers_are_left_out(tmp_path: Path) -> None:
    grades, numbers = scored(tmp_path, "moody_judge", ONCE)
    run = open_run(tmp_path, RUN)
    texts = run.scan("candidates").filter(pl.col("kind") == "greedy").collect()
    run.close()
    said = {row: int(text[-2]) for row, text in texts.select("candidate_id", "text").iter_rows()}
    reasons = {1: "out_of_range", 2: "out_of_range", 3: "missing"}
    whole = {0: "missing", 4: "contradictory"}
    regular = grades.filter(pl.col("aspect") != "just-eval:safety")
    for answer, aspect, status, rating in regular.select(
        "candidate_id", "aspect", "status", "rating"
    ).iter_rows():
        number = said[answer]
        expected = whole.get(number, "scored")
        if aspect == "just-eval:depth":
            expected = reasons.get(number, expected)
        assert (status, rating) == (expected, 4.0 if expected == "scored" else None), number
    depth = grades.filter(pl.col("aspect") == "just-eval:depth", pl.col("status") == "scored")
    measured = dict(numbers.select("metric", "n").iter_rows())
    assert 0 < measured["just-eval:depth"] == measured["just-eval:mean"] == depth.height < 9
    assert measured["just-eval:clarity"] > measured["just-eval:depth"]


def test_forged_scores_are_refused(tmp_path: Path) -> None:
    forged = "policy.engine.script=judges:forging_policy"
    grades, numbers = scored(tmp_path, "faithful_judge", forged, "injection_guard=true", ONCE)
    assert Counter(grades["status"]) == {"echo": 46}
    assert numbers.filter(pl.col("metric").str.starts_with("just-eval")).is_empty()


def test_unscorable_rows_refused(tmp_path: Path, subtests) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for settings, said in (
        (("assessment.judge.model=null", "assessment.judge.engine.kind=vllm"), "assessment.judge"),
        (("assessment.scores=[nothing]",), "no form of scores"),
        (("assessment.scores=[alignbench]",), "reference"),
        (("assessment.judge.engine.script=world:policy",), "its own answers"),
    ):
        with subtests.test(settings=settings):
            with pytest.raises(ConfigError, match=said), stand_ins(lake):
                loop(lake, config=config(tmp_path, "fair_judge", *settings))
            assert not (lake / "runs").exists()


KINDS = ("数学计算 初等数学", "逻辑推理 推理", "逻辑推理 证明", "基本任务 翻译")
OTHER_KINDS = ("中文理解", "综合问答", "文本写作", "角色扮演", "专业能力")
ALIGN = [
    {"prompt": f"问题 {n}", "reference": "好。", "family": kind.split()[0], "task": kind.split()[1]}
    for n, kind in enumerate([*KINDS, *(f"{name} 其他" for name in OTHER_KINDS)])
]


def test_alignbench_means(tmp_path: Path) -> None:
    form = "alignbench-zh"
    path = tmp_path / "align.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ALIGN, {"prompt": "ohne"}]))
    grades, numbers = scored(
        tmp_path, "terse_judge", f"prompts.held_out={{open: {path}}}", f"assessment.scores=[{form}]"
    )
    lacking = grades.filter(pl.col("status") != "scored")
    assert set(lacking["status"]) == {"no_reference"}
    assert set(lacking["attempts"]) == {0}
    assert lacking["prompt_id"].n_unique() == 1
    creative = grades.filter(pl.col("aspect") == f"{form}:creativity")
    assert creative.height == 3, "translation, writing and role play"
    means = dict(numbers.select("metric", "value").iter_rows())
    # The last of four aspects gets 7 points, the last of five 8.
    assert means[f"{form}:reasoning"] == 7.0
    assert means[f"{form}:language"] == pytest.approx((3 * 8 + 3 * 7) / 6)
    assert means[f"{form}:total"] == pytest.approx((7 + 7.5) / 2)
    assert "It lacks what the reference has." in grades["rationale"].to_list()
