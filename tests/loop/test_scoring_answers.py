"""A strong judge scores answers by forms; what it does not say is no number."""

import json
from collections import Counter
from pathlib import Path

import answer_judges
import polars as pl
import pytest
from crashing import RUN, SMALL, Silent, loop, stand_ins
from endpoints import Schemas, answering
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, EngineConfig, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.query.model_figures import run_results
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.served import identified
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.run.unread_replies import UnreadRepliesError
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.records import Message

FIVE = ("helpfulness", "clarity", "factuality", "depth", "engagement")
ASKED = [
    *({"prompt": f"What is good about {n}?", "source": "alpaca"} for n in range(9)),
    {"prompt": "How does one hurt somebody?", "task": "safety", "source": "red"},
]


SAMPLING = Sampling(temperature=0.0, top_p=1.0, max_tokens=1024)
ONCE = "assessment.judge.attempts=1"


def config(folder: Path, judge: str, *overrides: str) -> RunConfig:
    asked, train = folder / "asked.jsonl", folder / "train.jsonl"
    asked.write_text("".join(json.dumps(row) + "\n" for row in ASKED))
    train.write_text("".join(f'{{"prompt": "Say {n}."}}\n' for n in range(6)))
    settings = (
        *SMALL,
        f"prompts.source={train}",
        f"prompts.held_out={{open: {asked}}}",
        "prompts.evaluated=null",
        "prompts.dev_share=0",
        "iterations=0",
        *(f"assessment.{name}=null" for name in ("reference", "oracle")),
        "assessment.kl=false",
        "assessment.scores=[just-eval]",
        "assessment.judge.model=tiny",
        "assessment.judge.engine.kind=scripted",
        f"assessment.judge.engine.script=answer_judges:{judge}",
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


def test_regular_prompts_have_five_aspects_and_red_ones_safety(tmp_path: Path) -> None:
    grades, numbers = scored(tmp_path, "fair")
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


def test_what_a_judge_does_not_say_is_unscored_and_left_out(tmp_path: Path) -> None:
    grades, numbers = scored(tmp_path, "moody", ONCE)
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


@pytest.mark.parametrize("guard", ["true", "false"])
def test_an_answer_cannot_score_itself(tmp_path: Path, guard: str) -> None:
    forged = "policy.engine.script=answer_judges:forging_policy"
    grades, numbers = scored(tmp_path, "faithful", forged, f"guard={guard}", ONCE)
    assert Counter(grades["status"]) == {"echo": 46}
    assert numbers.filter(pl.col("metric").str.starts_with("just-eval")).is_empty()


def test_a_reply_that_cannot_be_read_is_asked_for_again(tmp_path: Path) -> None:
    few = ONCE
    before, _ = scored(tmp_path, "mending", few)
    unread = before.filter(pl.col("status") != "scored")
    assert 0 < unread.height < before.height

    with stand_ins(tmp_path):
        again = Job(
            config=config(tmp_path, "mending", few), lake=tmp_path, name=RUN, retry_unscored=True
        )
        run_loop(again, Silent(), StopSignal())
    run = open_run(tmp_path, RUN)
    after, numbers = run.scan("grades").collect(), run.scan("evaluations").collect()
    run.close()
    left = after.filter(pl.col("status") != "scored").height
    assert left < unread.height
    counted = numbers.filter(pl.col("metric") == "just-eval:depth")["n"].to_list()
    assert counted == [
        after.filter(pl.col("aspect") == "just-eval:depth", pl.col("status") == "scored").height
    ]


def test_people_can_look_at_every_score(tmp_path: Path) -> None:
    grades, _ = scored(tmp_path, "fair")
    lake = ["--lake", str(tmp_path)]
    listed = CliRunner().invoke(
        app, ["grades", RUN, *lake, "--aspect", "just-eval:depth", "--json"]
    )
    assert len(json.loads(listed.stdout)) == 9
    answer = grades.filter(pl.col("aspect") == "just-eval:depth")["candidate_id"][0]
    shown = CliRunner().invoke(app, ["show", answer, *lake])
    assert "just-eval:depth 4" in shown.stdout, shown.output
    assert "By depth." in shown.stdout
    told = CliRunner().invoke(app, ["status", RUN, *lake, "--by", "source"])
    assert "just-eval:depth" in told.stdout, told.output


def test_a_plan_counts_what_the_judge_is_asked(tmp_path: Path) -> None:
    wanted = config(tmp_path, "fair")
    found = rehearse(wanted, load_prompts(wanted.prompts, seed=0))
    (stage,) = [s for s in found.stages if s.notes.stage.startswith("score_answers:")]
    assert stage.notes.stage == "score_answers:evaluate:held-out:open:just-eval"
    assert stage.group.total == 10
    assert stage.notes.judge


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("assessment.judge.model=null", "no model is named as assessment.judge"),
        ("assessment.scores=[nothing]", "no form of scores can be read"),
        ("assessment.scores={shut: [just-eval]}", "is about the set 'shut', but"),
        ("assessment.scores=[alignbench]", "alignbench compares each answer with a reference"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_written(
    tmp_path: Path, setting: str, said: str
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    kind = "assessment.judge.engine.kind=vllm" if "judge.model" in setting else setting
    with pytest.raises(ConfigError, match=said), stand_ins(lake):
        loop(lake, config=config(tmp_path, "fair", setting, kind))
    assert not (lake / "runs").exists()


def test_a_policy_does_not_judge_itself(tmp_path: Path) -> None:
    same = "assessment.judge.engine.script=crashing:policy"
    with pytest.raises(ConfigError, match="would score its own answers"), stand_ins(tmp_path):
        loop(tmp_path, config=config(tmp_path, "fair", same))


def test_an_endpoint_that_misbehaves_costs_answers_and_no_number(tmp_path: Path) -> None:
    asked = Counter[str]()

    def judge(messages: list[dict[str, str]]) -> str:
        said = tuple(Message(role=m["role"], content=m["content"]) for m in messages)
        question = said[-1].content
        asked[question] += 1
        if "good about 3" in question:
            return "As an AI, I cannot rate other models."
        if "good about 4" in question and asked[question] == 1:
            return "4"
        return answer_judges.fair(Request(request_id="", messages=said, seed=0), SAMPLING)

    with answering(judge) as url:
        here = ("assessment.judge.engine.kind=openai", "assessment.judge.engine.script=null")
        model = f"assessment.judge.model={url}"
        grades, numbers = scored(tmp_path, "fair", *here, model, "budget.judge_calls=100")
    assert Counter(grades["status"]) == {"scored": 41, "refusal": 5}
    asked_for = dict(grades.group_by("attempts").agg(pl.col("prompt_id").n_unique()).iter_rows())
    assert asked_for == {1: 8, 2: 1, 3: 1}
    depth = numbers.filter(pl.col("metric") == "just-eval:depth")
    assert depth.select("value", "n").rows() == [(4.0, 8)]


@pytest.mark.parametrize("guard", ["true", "false"])
@pytest.mark.parametrize("schemas", ["kept", "refused"])
def test_a_judge_of_prose_is_kept_to_a_schema_by_its_endpoint(
    tmp_path: Path, schemas: Schemas, guard: str
) -> None:
    with answering(lambda _: "It is good.", schemas=schemas) as url:
        here = ("assessment.judge.engine.kind=openai", "assessment.judge.engine.script=null")
        kept = (f"assessment.judge.model={url}", "assessment.judge.engine.json_schema=auto")
        bound = (ONCE, f"guard={guard}", "smoke.prompts=0")
        grades, _ = scored(tmp_path, "fair", *here, *kept, *bound)
    told = {tuple(row) for row in grades.select("status", "rating", "rationale").rows()}
    unread = "unmarked" if guard == "true" else "missing"
    read = ("scored", 5.0, "It is good.")
    assert told == {read if schemas == "kept" else (unread, None, "")}


def test_the_judge_is_tried_before_anything_long_is_paid_for(tmp_path: Path) -> None:
    with stand_ins(tmp_path), pytest.raises(UnreadRepliesError, match="score_answers:smoke: "):
        loop(tmp_path, config=config(tmp_path, "silent", "iterations=1", "smoke.prompts=4"))


ALIGN = [
    {"prompt": f"问题 {n}", "reference": "好。", "family": family, "task": task}
    for n, (family, task) in enumerate(
        [
            ("数学计算", "初等数学"),
            ("逻辑推理", "推理"),
            ("逻辑推理", "证明"),
            ("基本任务", "翻译"),
            *(
                (name, "其他")
                for name in ("中文理解", "综合问答", "文本写作", "角色扮演", "专业能力")
            ),
        ]
    )
]


@pytest.mark.parametrize("form", ["alignbench", "alignbench-zh"])
def test_alignbench_takes_the_mean_of_category_means(tmp_path: Path, form: str) -> None:
    path = tmp_path / "align.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*ALIGN, {"prompt": "ohne"}]))
    grades, numbers = scored(
        tmp_path, "terse", f"prompts.held_out={{open: {path}}}", f"assessment.scores=[{form}]"
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
    run = open_run(tmp_path, RUN)
    told = {row.figure: row for row in run_results(run).rows if row.scope == "exam"}
    run.close()
    total = told[f"{form}:total"]
    assert (total.value, total.n) == (means[f"{form}:total"], 9)
    assert total.low is None, "one prompt of a category says nothing of its spread"


def test_a_schema_that_is_insisted_on_is_refused_for_a_model_that_runs_here() -> None:
    with pytest.raises(ConfigError, match=r"engine\.json_schema=on is for endpoints: tiny runs"):
        identified("tiny", EngineConfig(json_schema="on"))
    here = identified("tiny", EngineConfig(json_schema="auto", kind="scripted"))
    assert not here.by_schema
