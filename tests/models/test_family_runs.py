"""Each family of models through the whole loop: sampled, judged by an endpoint, trained, measured.

This file prints the table of seconds in `results/benchmarks.md`: `pytest -s -m slow -k family`.
"""

from pathlib import Path

import polars as pl
import pytest
from http_server import answering, verdict
from models import FAMILIES, write_family_prompts
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.query.runs import open_run

pytestmark = [pytest.mark.model, pytest.mark.slow]

SETTINGS = (
    "iterations=1",
    "smoke.prompts=0",
    "recipe.n=4",
    "recipe.m=1",
    "recipe.top_k=1",
    "prompts.per_iteration=12",
    "prompts.max_test=4",
    "prompts.max_dev=4",
    "prompts.input=headed",
    "policy.sampling.max_tokens=48",
    "evaluation.max_tokens=48",
    "policy.engine.max_model_len=512",
    "policy.engine.cpu_threads=1",
    "training.min_pairs=2",
    "training.dpo.batch_size=2",
    "training.dpo.micro_batch_size=2",
    "training.dpo.learning_rate=1e-4",
)


def run(model: Path, kind: str, folder: Path, *settings: str) -> str:
    """Run the loop from a model; return the error, or ""."""
    prompts = write_family_prompts(folder / "prompts.jsonl")
    with answering(lambda messages: verdict(messages[-1]["content"])) as url:
        words = ["run", "--prompts", prompts, "--policy", model, "--critic", url, "--run", "a"]
        words += ["--lake", folder / "lake"]
        for setting in (*SETTINGS, f"policy.engine.kind={kind}", *settings):
            words += ["--set", setting]
        told = CliRunner().invoke(app, [str(word) for word in words])
    return "" if told.exit_code == 0 else f"{told.exit_code}: {told.stderr}"


@pytest.mark.parametrize(("name", "kind"), [("qwen-2.5", "transformers"), ("llama-3", "vllm")])
def test_family_through_the_loop(family, tmp_path, name, kind) -> None:
    model = family(name)
    named = ("policy.engine.template=alpaca",) if FAMILIES[name].template is None else ()
    assert run(model, kind, tmp_path, *named) == ""
    opened = open_run(tmp_path / "lake", "a")
    candidates = opened.scan("candidates").collect()
    pairs = opened.scan("pairs").collect()
    checkpoints = opened.scan("checkpoints").sort("iteration").collect().to_dicts()
    scores = opened.scan("scores").collect()
    trained = opened.folder / checkpoints[-1]["path"]
    opened.close()
    assert len(checkpoints) == 2
    assert checkpoints[-1]["steps"] >= 1
    assert pairs.height >= 2
    # The small models have not learnt to answer the prompt of a refinement.
    said = candidates.filter(pl.col("kind") != "refinement")
    assert (said["finish_reason"] == "stop").mean() > 0.9
    assert set(scores["iteration"].unique()) == {0, 1}
    assert not candidates["text"].str.contains("<think>").any()
    if FAMILIES[name].thinks:
        assert (candidates["reasoning"] == "I add them.").mean() > 0.8
    if FAMILIES[name].template is None:
        assert "### Response:" in (trained / "chat_template.jinja").read_text()
