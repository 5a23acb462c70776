"""Compared answers may be those of several models, and annotators may be asked in Chinese."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from endpoints import answering
from judges import judged_config
from marking import MARK
from turns import rows, turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.opening import required_roles
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.recipes.annotated_pairs import annotated, drafted
from lpfloop.loop.run.completers import completers_of
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.records import SCORED, Candidate, Preference

POOL = """
models:
- {name: cool, model: policy, sampling: {temperature: 0.5, top_p: 0.9}}
- {name: parrot, model: tiny, engine: {kind: scripted, script: "scripts:parrot"}}
"""
CHINESE = re.compile(r"<output_1>(.*?)</output_1>.*?<output_2>(.*?)</output_2>", re.DOTALL)


def pool_file(folder: Path) -> Path:
    path = folder / "models.yaml"
    path.write_text(POOL)
    return path


@pytest.mark.parametrize("variant", ["chatglm-ppo", "chatglm-dpo", "chatglm-rs", "dpo"])
def test_compared_answers_are_those_of_the_pools_models_where_one_is_named(tmp_path, variant):
    settings = (f"completion.pool={pool_file(tmp_path)}", "recipe.n=2", f"recipe.name={variant}")
    wanted = Job(config=judged_config(tmp_path, "greater", *settings), lake=tmp_path, name="a")
    with turn(wanted) as it:
        pairs = rows(it, annotated(it, it.run.config.recipe))
        answers: list[Candidate] = rows(it, drafted(it, it.run.config.recipe))
    drafts = {c.candidate_id: c for c in answers}
    sides = Counter(drafts[side].model for p in pairs for side in (p.chosen_id, p.rejected_id))
    assert set(sides) == {"cool", "parrot"}
    assert {c.principle for c in drafts.values()} == {None}
    cool = next(c for c in drafts.values() if c.model == "cool")
    assert json.loads(cool.sampling)["temperature"] == 0.5


def test_without_a_pool_the_policys_own_samples_are_compared():
    config = load_config("tiny", "chatglm-ppo", [], {})
    assert completers_of(config) is None


def test_chatglms_pool_is_the_policy_under_several_sampling_strategies():
    config = load_config("tiny", "chatglm-ppo", ["completion.pool=chatglm"], {})
    found = completers_of(config)
    assert found is not None
    assert (found.others, found.mix) == ((), None)
    drawn = [model.sampling_of(config.policy.sampling) for model in found.pool.models]
    assert len({(s.temperature, s.top_p) for s in drawn}) == 4


# settings without effect


@pytest.mark.parametrize(
    ("variant", "setting", "why"),
    [
        ("rlrf", "completion.pool=chatglm", "rlrf asks the policy alone"),
        ("chatglm-ppo", "completion.principles=none", "chatglm-ppo gives its models no principles"),
        ("dpo", "grading.attempts=3", "the recipe dpo has nothing graded"),
        ("rlrf", "annotation.comparisons=all", "compares no answers, and assessment.reference"),
        ("sft", "annotation.drop_cycles=true", "compares no answers, and evaluation has no use"),
        ("ultrafeedback-dpo", "annotation.keyed_on=pair", "compares no answers"),
    ],
)
def test_what_the_recipe_does_not_look_at_is_refused(variant, setting, why):
    with pytest.raises(
        ConfigError, match=f"{setting.partition('=')[0]} would change nothing: "
    ) as e:
        required_roles(job_of(variant, setting))
    assert why in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("variant", "setting"),
    [
        ("chatglm-ppo", "completion.pool=chatglm"),
        ("chatglm-rs", "annotation.attempts=3"),
        ("ultrafeedback-ppo", "grading.attempts=3"),
        ("ultrafeedback-bon", "completion.pool=policy"),
    ],
)
def test_with_a_reward_model_nothing_that_makes_one_can_be_set(variant, setting):
    said = ("reward.model=tiny", "assessment.reference=null", setting)
    with pytest.raises(ConfigError, match=r"would change nothing: with reward\.model tiny"):
        job_of(variant, *said)
    assert job_of(variant, setting)


def test_with_peoples_labels_annotators_and_their_answers_are_not_set_either(tmp_path):
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    said = (f"annotation.source=[{labels}]", "assessment.reference=null")
    with pytest.raises(ConfigError, match="would change nothing: with annotation"):
        job_of("dpo", *said, "completion.pool=chatglm")
    assert job_of("dpo", *said, "annotation.drop_cycles=true")


def test_a_model_that_no_annotator_is_made_of_is_refused(tmp_path):
    pool = tmp_path / "pool.yaml"
    row = "{name: a, model: strong, template: chatglm, form: json, max_tokens: 9}"
    pool.write_text(f"annotators: [{row}]")
    said = (f"annotation.pool={pool}", "annotation.weak.model=tiny")
    with pytest.raises(ConfigError, match=r"annotation\.weak\.model would change nothing: no"):
        job_of("dpo", *said)


def job_of(variant: str, *settings: str) -> Job:
    config = RunOptions(variant=variant, settings=settings).resolved()
    return Job(config=config, lake=Path("nowhere"), name="a")


# Chinese


def chinese_judge(messages: list[dict[str, str]]) -> str:
    """Prefer the longer answer, and say so in Chinese below the line that is asked for."""
    text = messages[-1]["content"]
    assert "有用性" in text
    assert "安全性" in text
    mark, (first, second) = MARK.search(text), CHINESE.findall(text)[0]
    longer = len(first) > len(second)
    said = {"explanation": "回答更完整，也更通顺。", "preferred": 1 if longer else 2}
    reply = json.dumps(said, ensure_ascii=False)
    return f"{mark[1]}\n{reply}" if mark else reply


def test_annotators_at_an_endpoint_are_asked_and_answer_in_chinese(tmp_path):
    with answering(chinese_judge) as url:
        models = [f"annotation.{role}.model={url}" for role in ("strong", "medium", "weak")]
        engines = [f"annotation.{r}.engine.kind=auto" for r in ("strong", "medium", "weak")]
        scripts = [f"annotation.{r}.engine.script=null" for r in ("strong", "medium", "weak")]
        settings = ("annotation.pool=chatglm-zh", "annotation.flip_probability=0", *models)
        words = "policy.engine.script=scripts:wordy_policy"
        config = judged_config(tmp_path, "greater", *settings, *engines, *scripts, words)
        with turn(Job(config=config, lake=tmp_path, name="a")) as it:
            drafts = sample(it, it.prompts(), n=2)
            found: list[Preference] = rows(it, annotate(it, drafts))
            texts = {c.candidate_id: c.text for c in rows(it, drafts)}
    assert {row.status for row in found} == {SCORED}
    assert {row.annotator for row in found} == {
        f"{r}_guideline" for r in ("strong", "medium", "weak")
    }
    asked = [row for row in found if row.text]
    assert all("回答更完整，也更通顺。" in row.text for row in asked)
    for row in asked:
        first, second = texts[row.first_id], texts[row.second_id]
        if len(first) != len(second):
            assert row.preferred == ("first" if len(first) > len(second) else "second")
