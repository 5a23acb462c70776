"""Quark for real: a few steps of a tiny policy, with tokens and without, killed and resumed."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from online_jobs import make_online_world, quark_job
from trainings import sha256, starts

from lpfloop.policies.online.quantiles import quantile_token
from lpfloop.policies.trainers.step_files import read_step
from lpfloop.policies.trainers.train_model import TrainJob, train
from lpfloop.stores.frames import as_frame
from lpfloop.stores.records import Candidate, Rollout, Statistic
from lpfloop.stores.schemas import Row

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_online_world(tmp_path_factory.mktemp("online"))


def rows(job: TrainJob, step: int, noun: type[Row]) -> pl.DataFrame:
    return as_frame(read_step(job.output, step)[noun])


def numbers(job: TrainJob, step: int) -> Mapping[str, float]:
    return dict(rows(job, step, Statistic)["metric", "value"].iter_rows())


def test_each_step_learns_the_best_quarter_and_leaves_its_rows(world: Path, tmp_path: Path):
    job = quark_job(world, tmp_path / "work")
    result = train(job, log=tmp_path / "log")
    assert result.steps == 4
    rollouts = rows(job, 1, Rollout)
    assert sorted(rollouts["quantile"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    ordered = rollouts.sort("quantile")["reward"].to_list()
    assert min(ordered[:2]) >= max(ordered[2:])
    # Before its first update the policy is the reference, and what it has learned holds it near.
    assert rollouts["kl"].to_list() == pytest.approx([0.0] * 8, abs=1e-5)
    assert numbers(job, 4)["kl"] > 0
    assert numbers(job, 1)["logprob_gap"] < 2e-4
    assert result.metrics["loss/nll"] > 0
    # Appendix B.2: the learning rate decays to 0 throughout training.
    rates = [numbers(job, step)["learning_rate"] for step in range(1, 5)]
    assert rates == pytest.approx([7.5e-4, 5e-4, 2.5e-4, 0.0])


def test_as_the_papers_code_a_step_is_one_update_of_each_groups_best(world: Path, tmp_path: Path):
    code = {"gradient_steps": 1, "quantiles_over": "group", "group": 4, "missing_eos": "none"}
    job = quark_job(world, tmp_path / "work", **code, schedule_by="step", warmup_steps=2)
    train(job, log=tmp_path / "log")
    # Two devices of four samples: the best of each is learned, wherever the other's lie.
    assert [sorted(rows(job, 1, Rollout)["quantile"][n : n + 4]) for n in (0, 4)] == [
        [0, 1, 2, 3]
    ] * 2
    rates = [numbers(job, step)["learning_rate"] for step in range(1, 5)]
    assert rates == pytest.approx([0.0, 0.5e-3, 1e-3, 0.5e-3])
    # The first step has the rate 0: before the second the policy is what it was.
    assert numbers(job, 2)["kl"] == pytest.approx(0.0, abs=1e-5)
    assert numbers(job, 4)["kl"] > 0


def test_with_all_quantiles_the_published_tokenizer_knows_their_tokens(world: Path, tmp_path: Path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    job = quark_job(world, tmp_path / "work", train_on="all", max_steps=2)
    model = train(job, log=tmp_path / "log").output
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokens = [quantile_token(q) for q in range(4)]
    known = len(AutoTokenizer.from_pretrained(world / "model"))
    assert tokenizer.convert_tokens_to_ids(tokens) == [known, known + 1, known + 2, known + 3]
    assert len(tokenizer.encode(f"{tokens[0]}Hello")) == 1 + len(tokenizer.encode("Hello"))
    weights = AutoModelForCausalLM.from_pretrained(model)
    assert weights.get_input_embeddings().num_embeddings == known + 4
    # In the second step the policy was asked behind the token, which no row shows.
    both = rows(job, 1, Candidate).join(rows(job, 2, Candidate), on="prompt_id")
    assert set(both["prompt_tokens_right"] - both["prompt_tokens"]) == {1}
    # The reference is as long as the policy was before: its KL is finite, and 0 in the beginning.
    assert numbers(job, 1)["kl"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.crash
@pytest.mark.parametrize("settings", [{"pool": "growing"}, {"train_on": "all"}])
def test_killed_after_a_step_and_resumed_it_gives_the_same_rows_and_weights(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
):
    job = quark_job(world, tmp_path / "whole", **settings)
    train(job, log=tmp_path / "log")
    again = quark_job(world, tmp_path / "killed", **settings)
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.step.written#3:kill")
    train(again, log=tmp_path / "log", retries=1, checkpoint_minutes=0)
    assert starts(again.output) == [0, 2]
    weights = "model/model.safetensors"
    assert sha256(job.folder(weights)) == sha256(again.folder(weights))
    for step in range(1, 5):
        for noun in (Candidate, Rollout, Statistic):
            assert rows(job, step, noun).equals(rows(again, step, noun))
