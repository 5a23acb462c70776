"""Models that think: what is judged, trained and stored of what they say, through the loop."""

from functools import partial

import polars as pl
import pytest
from crashing import Telling, small_config, write_prompts
from crashing import train as stand_in

import lpfloop.loop.stages.publish
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.recipes.sampling_needs import require_sampling
from lpfloop.loop.run.stop import StopSignal
from lpfloop.policies.trainers.train_model import TrainJob
from lpfloop.stores.lake import RunReader, run_folder

THINKING = (
    "policy.engine.script=scripts:thinking_policy",
    "critic.engine.script=scripts:thinking_critic",
    "policy.sampling.max_tokens=24",
    "evaluation.max_tokens=24",
    "prompts.per_iteration=6",
    "recipe.n=4",
    "iterations=1",
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Turn the loop once; return the run, the notes, and the thoughts that are trained."""
    trained: list[dict[str, str] | None] = []

    def train(job: TrainJob, **options):
        file = job.turns.thoughts
        trained.append(None if file is None else dict(pl.read_parquet(file).iter_rows()))
        return stand_in(job, **options)

    monkeypatch.setattr(lpfloop.loop.stages.publish, "train", train)

    def turned(*settings: str):
        config = small_config(write_prompts(tmp_path), *THINKING, *settings)
        told = Telling()
        run_loop(Job(config=config, lake=tmp_path, name="a"), told, StopSignal())
        return RunReader(run_folder(tmp_path, "a")), told.notes, trained[-1]

    return turned


def test_a_thought_is_stored_apart_and_nobody_is_asked_about_one_that_was_cut(run):
    reader, notes, trained = run()
    drawn = reader.scan("candidates").filter(pl.col("policy").is_not_null()).collect()
    cut = drawn.filter(pl.col("finish_reason") == "truncated_thinking")
    whole = drawn.filter(pl.col("finish_reason") == "stop")
    assert 0 < cut.height < drawn.height == cut.height + whole.height
    assert set(cut["text"]) == {""}
    assert set(whole["reasoning"]) == {"hm hm"}
    assert whole["text"].str.starts_with("Okay. The answer is").all()
    said = reader.scan("critiques").collect().join(drawn, "candidate_id", suffix="_of")
    unasked = said.filter(pl.col("finish_reason") == "truncated_thinking")
    assert set(unasked["status"]) == {"truncated_thinking"}
    assert set(unasked["attempts"]) == {0}
    assert any("cut inside their thought" in note and "max_tokens (24)" in note for note in notes)
    assert trained is None
    reader.close()


def test_a_judge_s_thought_is_no_part_of_its_reply(run):
    reader, _, _ = run()
    asked = reader.scan("critiques").filter(pl.col("attempts") > 0).collect()
    assert set(asked["status"]) == {"scored"}
    assert not asked["text"].str.contains("Perhaps").any()
    reader.close()


def test_the_thoughts_of_what_is_trained_come_along_where_they_are_asked_for(run):
    reader, _, thoughts = run("training.thought=own")
    drawn = reader.scan("candidates").collect()
    pairs = reader.scan("pairs").collect()
    reader.close()
    trained = {*pairs["chosen_id"], *pairs["rejected_id"]}
    wanted = drawn.filter(pl.col("candidate_id").is_in(sorted(trained)))
    assert thoughts == dict(wanted["candidate_id", "reasoning"].iter_rows())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("top_p", 0.9),
        ("top_k", 50),
        ("min_p", 0.1),
        ("repetition_penalty", 1.1),
        ("stop", "[END]"),
    ],
)
@pytest.mark.parametrize("variant", ["ppo", "quark"])
def test_an_online_method_takes_the_whole_distribution_alone(variant, setting, value):
    config = partial(load_config, "tiny", variant, env={})
    require_sampling(RECIPES[variant].recipe, config([]))
    narrow = config([f"policy.sampling.{setting}={[value] if setting == 'stop' else value}"])
    with pytest.raises(ConfigError, match=rf"policy.sampling.{setting} is .*leave {setting} out"):
        require_sampling(RECIPES[variant].recipe, narrow)
    require_sampling(
        RECIPES["rlrf"].recipe,
        load_config("tiny", "rlrf", [f"policy.sampling.{setting}={value}"], {}),
    )


def test_an_answer_alone_is_not_trained_where_a_turn_begins_inside_a_thought(tmp_path):
    template = "{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(template)
    at = [f"policy.model={tmp_path}"]
    for more in ([], ["training.thought=own"], ["training.thought=template"]):
        config = load_config("tiny", "rlrf", [*at, *more], {})
        if more:
            require_sampling(RECIPES["rlrf"].recipe, config)
        else:
            with pytest.raises(
                ConfigError, match=r"begins inside its thought.*set training.thought"
            ):
                require_sampling(RECIPES["rlrf"].recipe, config)


def test_what_is_not_set_is_not_stored_with_a_row(run):
    reader, _, _ = run()
    (sampling,) = reader.scan("candidates").filter(kind="sample").collect()["sampling"].unique()
    assert sampling == '{"max_tokens":24,"temperature":1.0,"top_p":1.0}'
    reader.close()
