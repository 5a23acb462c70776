"""Real input beyond the tiny world: GSM8K, and vLLM's OpenAI-compatible server on loopback."""

import json

import pytest
from servers import KEY, wait_until_served
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def gsm8k(shared_data, tmp_path_factory):
    """The first twelve problems of GSM8K's training split."""
    lines = (shared_data / "gsm8k_train_first4000.jsonl").read_text().split("\n")
    path = tmp_path_factory.mktemp("gsm8k") / "gsm8k.jsonl"
    path.write_text("\n".join(lines[:12]))
    return path


def run(endpoint, prompts, lake, *, key=KEY):
    wait_until_served(endpoint)
    url = endpoint.url
    arguments = ["run", "--prompts", prompts, "--policy", url, "--critic", url, "--run", "gsm"]
    settings = [
        "policy.sampling.max_tokens=24",
        "smoke.prompts=0",
        "critic.sampling.max_tokens=48",
        "recipe.n=2",
        "recipe.m=1",
        "iterations=1",
    ]
    for setting in settings:
        arguments += ["--set", setting]
    return CliRunner().invoke(
        app,
        [str(a) for a in (*arguments, "--lake", lake)],
        env={"LPFLOOP_API_KEY": key},
    )


def test_a_critic_that_can_not_follow_the_prompt_stops_the_loop_before_training(
    endpoint, gsm8k, tmp_path
):
    told = run(endpoint, gsm8k, tmp_path)
    assert told.exit_code == Exit.NOTHING_TO_TRAIN_ON, told.stderr
    assert "fewer than training.min_pairs" in told.stderr
    status = json.loads(
        CliRunner().invoke(app, ["status", "gsm", "--json", "--lake", str(tmp_path)]).stdout
    )
    counts = status["iterations"][1]["counts"]
    assert counts["critiques"] == counts["candidates"] > 0
    # A short dictionary may come right by chance: it is then as it was asked for, and is read.
    assert sum(counts["unscored"].values()) > 0.8 * counts["critiques"]
    stored = CliRunner().invoke(
        app, ["critiques", "gsm", "--unscored", "--json", "--lake", str(tmp_path)]
    )
    rows = json.loads(stored.stdout)
    assert all(a["rating"] is None for row in rows for a in row["aspects"])
    assert any(row["text"] for row in rows)
    assert {row["attempts"] for row in rows if row["status"] != "overlong"} == {2}


def test_an_endpoint_that_refuses_the_key_is_bad_input(endpoint, gsm8k, tmp_path):
    told = run(endpoint, gsm8k, tmp_path / "lake", key="wrong-key-of-mine")
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stderr.startswith("error: ")
    assert endpoint.url in told.stderr
    assert "wrong-key-of-mine" not in told.stderr
    assert not (tmp_path / "lake").exists()


def test_the_key_is_nowhere_in_the_lake(endpoint, gsm8k, tmp_path):
    run(endpoint, gsm8k, tmp_path)
    key = KEY.encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if key in path.read_bytes()] == []
