"""Answers are assessed as the configuration asks, and a run that asks nothing stays as it was."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from crashing import Silent

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.evaluate_run import evaluate_run
from lpfloop.loop.daemon.exams import examined
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import iteration, run_loop
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.prompts import load_prompts, tiny_prompts
from lpfloop.loop.evaluation.assess import evaluate, load_oracle
from lpfloop.loop.evaluation.kl_divergence import divergence
from lpfloop.loop.evaluation.reference_outputs import read_outputs
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.statistics.clustered_error import mean_error
from lpfloop.loop.run.handles import chunked
from lpfloop.loop.run.models import Served
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Checkpoint

SCRIPTED = (
    "iterations=0",
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.kind=verifier",
    "prompts.evaluated=12",
    "prompts.deciding=12",
    "prompts.chunk=5",
    "reward.model=none",
)


def job(lake: Path, *overrides: str, name: str = "a") -> Job:
    return Job(
        config=load_config("tiny", "rlrf", (*SCRIPTED, *overrides), {}), lake=lake, name=name
    )


def done(wanted: Job) -> Job:
    run_loop(wanted, Silent(), StopSignal())
    return wanted


def rows(lake: Path, table: str, name: str = "a") -> pl.DataFrame:
    run = open_run(lake, name)
    frame = run.scan(table).collect()
    run.close()
    return frame


def numbers(lake: Path, name: str = "a") -> dict[str, tuple[float, float, int]]:
    found = rows(lake, "evaluations", name).select("metric", "value", "stderr", "n")
    return {metric: tuple(rest) for metric, *rest in found.iter_rows()}


def committed(lake: Path, name: str = "a") -> dict[str, str]:
    run = open_run(lake, name)
    found = {part.unit: part.sha256 for part in run.journal.parts()}
    run.close()
    return found


ALPACA = (
    "annotation.pool=tiny",
    *(
        f"annotation.{role}.{setting}"
        for role in ("strong", "medium", "weak")
        for setting in (
            "model=tiny",
            "engine.kind=scripted",
            f"engine.script=lpfloop.loop.tiny.annotators:{role}",
        )
    ),
)
REFERRED = (*ALPACA, "assessment.reference=tiny")
SCORED = "assessment.oracle=oracles:length"


def test_answers_are_compared_with_the_references_outputs(tmp_path):
    done(job(tmp_path, *REFERRED))
    preferences = rows(tmp_path, "preferences")
    assert preferences.height == 12
    candidates = rows(tmp_path, "candidates")
    references = candidates.filter(pl.col("kind") == "external")
    assert set(preferences["first_id"]) == set(references["candidate_id"])
    assert references["model"].unique().to_list() == ["tiny"]
    assert references["iteration"].unique().to_list() == [0]
    read = preferences["preferred"].drop_nulls().to_list()
    won = [{"first": 0.0, "tie": 0.5, "second": 1.0}[preferred] for preferred in read]
    value, error, n = numbers(tmp_path)["win_rate"]
    assert n == len(won)
    assert math.isclose(value, sum(won) / n)
    clusters = dict(rows(tmp_path, "prompts").select("prompt_id", "cluster").iter_rows())
    asked = [clusters[p] for p in preferences.drop_nulls("preferred")["prompt_id"]]
    assert math.isclose(error, mean_error(won, asked))
    controlled = numbers(tmp_path)["length_controlled_win_rate"]
    assert 0 <= controlled[0] <= 1
    assert controlled[2] == n


def test_a_run_takes_how_hard_its_instructions_are_from_a_file(tmp_path):
    done(job(tmp_path, *REFERRED))
    asked = rows(tmp_path, "prompts").filter(pl.col("split") == "held-out")
    texts = [turns[0]["content"] for turns in asked["messages"].to_list()]
    path = tmp_path / "difficulty.jsonl"
    path.write_text(
        "\n".join(
            json.dumps({"instruction": text, "difficulty": n % 3}) for n, text in enumerate(texts)
        )
    )
    hard = (*REFERRED, f"assessment.difficulty={path}")
    done(job(tmp_path, *hard, name="b"))
    plain, controlled = numbers(tmp_path), numbers(tmp_path, "b")
    assert plain["win_rate"] == controlled["win_rate"]
    assert plain["length_controlled_win_rate"] != controlled["length_controlled_win_rate"]
    path.write_text(path.read_text().splitlines()[0])
    with pytest.raises(InputError, match=r"has no difficulty of"):
        done(job(tmp_path, *hard, name="c"))
    with pytest.raises(ConfigError, match=r"without assessment\.reference"):
        done(job(tmp_path, f"assessment.difficulty={path}", name="c"))


INITIAL = (*ALPACA, "assessment.reference=initial", "prompts.deciding=6")


def test_m_0_ties_with_itself_without_asking_anybody(tmp_path):
    done(job(tmp_path, *INITIAL))
    preferences = rows(tmp_path, "preferences")
    assert preferences.height == 12 + 6
    assert preferences["preferred"].unique().to_list() == ["tie"]
    assert preferences["text"].unique().to_list() == [""]
    told = rows(tmp_path, "evaluations").filter(pl.col("metric") == "win_rate")
    found = told.select("benchmark", "value", "n").sort("benchmark").rows()
    assert found == [("dev", 0.5, 6), ("held-out", 0.5, 12)]
    assert rows(tmp_path, "candidates").filter(pl.col("kind") == "external").is_empty()


def test_another_policy_is_compared_with_m_0_in_both_orders_and_owed_once(tmp_path):
    wanted = done(job(tmp_path, *INITIAL))
    prompts = load_prompts(wanted.config.prompts, seed=0)
    first = Checkpoint(**rows(tmp_path, "checkpoints").row(0, named=True))
    engine = wanted.config.policy.engine.model_copy(update={"script": "scripts:wordy_policy"})
    other = Served(name="other", identity="other", location="x", engine=engine)

    def measure() -> None:
        with opened(wanted, prompts, Silent(), StopSignal()) as run:
            held_out = chunked(examined(run.config, prompts), run.config.prompts.chunk)
            evaluate(replace(iteration(run, 1, first), policy=other), held_out)

    measure()
    asked = rows(tmp_path, "preferences").filter(pl.col("iteration") == 1)
    assert asked.height == 12
    assert asked.filter(pl.col("text") != "")["order"].unique().to_list() == ["both"]
    texts = dict(rows(tmp_path, "candidates").select("candidate_id", "text").iter_rows())
    initial = rows(tmp_path, "candidates").filter(pl.col("iteration") == 0)["candidate_id"]
    assert set(asked["first_id"]) < set(initial)
    same = [
        row["preferred"]
        for row in asked.iter_rows(named=True)
        if texts[row["first_id"]].split() == texts[row["second_id"]].split()
    ]
    assert set(same) <= {"tie"}
    before = committed(tmp_path)
    measure()
    assert committed(tmp_path) == before


def test_a_world_s_own_score_is_that_of_each_answer(tmp_path):
    done(job(tmp_path, SCORED))
    scores = rows(tmp_path, "scores").filter(pl.col("metric") == "true_score")
    asked = rows(tmp_path, "prompts").select("prompt_id", "messages")
    texts = rows(tmp_path, "candidates").select("candidate_id", "text")
    found = scores.join(texts, on="candidate_id").join(asked, on="prompt_id")
    assert 0 < found.height <= 12
    for score in found.iter_rows(named=True):
        assert score["value"] == len(score["text"])
        assert len(score["messages"][0]["content"]) % 2 == 1
    assert numbers(tmp_path)["true_score"][2] == found.height


def test_what_is_assessed_changes_nothing_else_of_a_run(tmp_path):
    done(job(tmp_path))
    done(job(tmp_path, *REFERRED, SCORED, name="b"))
    plain, assessed = committed(tmp_path), committed(tmp_path, "b")
    assert plain.items() <= assessed.items()


def test_what_is_assessed_is_owed_once(tmp_path):
    wanted = done(job(tmp_path, *REFERRED, SCORED))
    before = committed(tmp_path)
    done(wanted)
    assert committed(tmp_path) == before


# reference outputs of a file


def outputs(folder: Path, count: int = 660, **fields: object) -> Path:
    held_out = [p for p in tiny_prompts() if p.split == "held-out"][:count]
    path = folder / "outputs.json"
    path.write_text(
        json.dumps(
            [
                {
                    "instruction": prompt.instruction,
                    "output": f"Output {n}.",
                    "generator": "davinci",
                    **fields,
                }
                for n, prompt in enumerate(held_out)
            ]
        )
    )
    return path


def test_a_file_holds_the_reference(tmp_path):
    path = outputs(tmp_path)
    done(job(tmp_path, *ALPACA, f"assessment.reference={path}"))
    references = rows(tmp_path, "candidates").filter(pl.col("kind") == "external")
    assert references["model"].unique().to_list() == ["davinci"]
    assert references["text"].str.starts_with("Output ").all()


def test_a_file_that_lacks_an_output_is_refused_before_anything_is_written(tmp_path):
    path = outputs(tmp_path, count=3)
    with pytest.raises(InputError, match="has no output to the held-out prompt"):
        done(job(tmp_path / "lake", *ALPACA, f"assessment.reference={path}"))
    assert not (tmp_path / "lake").exists()


def test_a_changed_file_is_another_configuration(tmp_path):
    path = outputs(tmp_path)
    wanted = job(tmp_path, *ALPACA, f"assessment.reference={path}")
    done(wanted)
    outputs(tmp_path, generator="other")
    with pytest.raises(ConfigError, match="reference: "):
        done(wanted)


def test_two_outputs_to_one_prompt_or_none_are_refused(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"instruction": "a", "output": "b"}\n{"instruction": "a", "output": "c"}\n')
    with pytest.raises(InputError, match="line 2: a second output to 'a'"):
        read_outputs(path)
    path.write_text('{"instruction": "a"}\n')
    with pytest.raises(InputError, match="line 1: 'output' must be a text, but is null"):
        read_outputs(path)


def test_a_reference_may_have_said_nothing(tmp_path):
    path = tmp_path / "outputs.json"
    path.write_text('[{"instruction": "a", "output": ""}]')
    (output,) = read_outputs(path).values()
    assert output.text == ""


def test_alpaca_eval_s_file_gives_both_the_prompts_and_the_reference(tmp_path):
    path = outputs(tmp_path, count=20, dataset="koala")
    asked = tmp_path / "train.jsonl"
    asked.write_text('{"prompt": "What do you think?"}\n')
    files = (f"prompts.source={asked}", f"prompts.held_out={path}", f"assessment.reference={path}")
    done(job(tmp_path, *ALPACA, *files))
    texts = rows(tmp_path, "candidates").filter(pl.col("kind") == "external")["text"]
    assert set(texts) <= {f"Output {n}." for n in range(20)}
    assert numbers(tmp_path)["win_rate"][2] + unread(tmp_path) == 12


def unread(lake: Path) -> int:
    return rows(lake, "preferences")["preferred"].null_count()


def test_prompts_of_the_users_own_have_neither_reference_nor_oracle(tmp_path):
    done(job(tmp_path, *REFERRED, SCORED))
    own = tmp_path / "own.jsonl"
    own.write_text('{"prompt": "What do you think?"}\n')
    found = evaluate_run(tmp_path, "a", None, {"own": own}, Silent())
    assert {number.metric for number in found} == {"mean_length"}


# what cannot be assessed


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nothing", "cannot be loaded"),
        ("oracles:nothing", "cannot be loaded"),
        ("oracles:NUMBER", "is not a function"),
        (":", "cannot be loaded"),
    ],
)
def test_an_oracle_that_is_not_there_is_refused(path, reason):
    with pytest.raises(ConfigError, match=reason):
        load_oracle(path)


def test_an_oracle_that_does_not_know_the_prompts_is_refused(tmp_path):
    prompts = tmp_path / "own.jsonl"
    prompts.write_text("".join(f'{{"prompt": "Question {n}?"}}\n' for n in range(20)))
    own = f"prompts.source={prompts}"
    with pytest.raises(ConfigError, match="does not know a prompt"):
        done(job(tmp_path, own, "assessment.oracle=lpfloop.loop.tiny.human:score"))
    with pytest.raises(InputError, match=r"assessment\.reference 'tiny'"):
        done(job(tmp_path, own, *ALPACA, "assessment.reference=tiny"))


def test_the_kl_needs_a_model_at_hand(tmp_path):
    url = ("policy.model=http://127.0.0.1:9/v1", "policy.engine.kind=openai")
    with pytest.raises(ConfigError, match=r"assessment\.kl needs"):
        done(job(tmp_path, *url, "assessment.kl=true"))


# with real models

REAL = (
    "iterations=0",
    "policy.engine.kind=transformers",
    "critic.kind=verifier",
    "prompts.evaluated=8",
    "prompts.dev_share=0",
    "prompts.chunk=4",
    "assessment.kl=true",
    "assessment.reward=true",
)


def real_job(lake: Path) -> Job:
    return Job(config=load_config("tiny", "rlrf", REAL, {}), lake=lake, name="a")


def initial(run) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=run.models.initial.identity,
        parent_id=None,
        reference_id=None,
        iteration=0,
        recipe="initial",
        path="tiny",
        steps=0,
        metrics="{}",
    )


@pytest.mark.model
def test_m_0_has_no_divergence_from_itself_and_a_changed_policy_has_one(tmp_path, tiny_policy):
    import torch
    from safetensors.torch import load_file, save_file

    wanted = done(real_job(tmp_path))
    value, error, n = numbers(tmp_path)["kl"]
    assert (value, error) == (0, 0)
    assert 4 <= n <= 8
    rewards = rows(tmp_path, "rewards")["score"].to_list()
    assert math.isclose(numbers(tmp_path)["reward"][0], sum(rewards) / 8)

    changed = tmp_path / "changed"
    shutil.copytree(tiny_policy, changed)
    weights = load_file(changed / "model.safetensors")
    noise = torch.Generator().manual_seed(0)
    noisy = {n: w + 0.02 * torch.randn(w.shape, generator=noise) for n, w in weights.items()}
    save_file(noisy, changed / "model.safetensors", metadata={"format": "pt"})
    other = Served(
        name="changed",
        identity="changed",
        location=str(changed),
        engine=wanted.config.policy.engine,
    )
    prompts = load_prompts(wanted.config.prompts, seed=0)
    asked = chunked([p for p in prompts if p.split == "held-out"][:8], 4)
    with opened(wanted, prompts, Silent(), StopSignal()) as run:
        it = replace(iteration(run, 1, initial(run)), policy=other)
        handle = divergence(it, asked, "held-out")
        found = [score for chunk in range(2) for score in it.chunk(handle, chunk)]
    assert found
    assert all(score.checkpoint_id == "changed" for score in found)
    assert sum(score.value for score in found) / len(found) > 0.1
