"""The KL divergence of a policy from M_0, from the models' log-probabilities."""

import shutil
from dataclasses import replace

import polars as pl
import pytest
from world import Silent

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.iterations import iteration
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.evaluation.kl_divergence import divergence
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.handles import chunk_prompts
from lpfloop.loop.run.models import Served
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Checkpoint

pytestmark = [pytest.mark.model, pytest.mark.slow]
REAL = (
    "iterations=0",
    "policy.engine.kind=transformers",
    "critic.kind=verifier",
    "prompts.max_test=8",
    "prompts.dev_share=0",
    "prompts.chunk=4",
    "assessment.kl=true",
)


def test_divergence_of_a_changed_policy(tmp_path, tiny_policy):
    import torch
    from safetensors.torch import load_file, save_file

    wanted = Job(config=load_config("tiny", "rlrf", REAL, {}), lake=tmp_path, name="a")
    run_loop(wanted, Silent(), StopSignal())
    reader = open_run(tmp_path, "a")
    numbers = reader.scan("evaluations").collect()
    first = Checkpoint(**reader.scan("checkpoints").collect().row(0, named=True))
    reader.close()
    kl = numbers.filter(pl.col("metric") == "kl").row(0, named=True)
    assert (kl["value"], kl["stderr"]) == (0, 0)

    changed = shutil.copytree(tiny_policy, tmp_path / "changed")
    weights = load_file(changed / "model.safetensors")
    noise = torch.Generator().manual_seed(0)
    noisy = {n: w + 0.02 * torch.randn(w.shape, generator=noise) for n, w in weights.items()}
    save_file(noisy, changed / "model.safetensors", metadata={"format": "pt"})
    engine = wanted.config.policy.engine
    other = Served(name="changed", identity="changed", location=str(changed), engine=engine)
    prompts = load_prompts(wanted.config.prompts, seed=0)
    asked = chunk_prompts([p for p in prompts if p.split == "held-out"][:8], 4)
    with open_job(wanted, prompts, Silent(), StopSignal()) as run:
        it = replace(iteration(run, 1, first), policy=other)
        handle = divergence(it, asked, "held-out")
        found = [score for chunk in range(2) for score in it.chunk(handle, chunk)]
    assert {score.checkpoint_id for score in found} == {"changed"}
    assert sum(score.value for score in found) / len(found) > 0.1
