"""Capability probes: read strictly, measured once a policy, with an alarm if a score falls."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
from world import Telling

from lpfloop.configs.engines import EngineConfig
from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.iterations import iteration
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.opening import open_job
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.evaluation.probe import probe
from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.models import Served
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.records import Checkpoint

SCRIPTED = (
    "iterations=0",
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:probed_policy",
    "critic.kind=verifier",
    "prompts.max_test=3",
    "prompts.max_dev=3",
    "prompts.chunk=4",
    "reward.model=none",
)
WORDS = ("apple", "bell", "cat", "drum", "egg")


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def probes_file(folder: Path) -> Path:
    words = [
        {"prompt": f"Say {w}", "checks": [{"kind": "equals", "argument": w}], "probe": "word"}
        for w in WORDS
    ]
    names = [
        {
            "prompt": f"I am {w}. Who are you?",
            "checks": [{"kind": "self_identifies", "argument": "Loopy"}],
            "probe": "name",
        }
        for w in WORDS
    ]
    return written(folder / "probes.jsonl", [*words, *names])


def job(lake: Path, *overrides: str) -> Job:
    config = load_config("tiny", "rlrf", (*SCRIPTED, *overrides), {})
    return Job(config=config, lake=lake, name="a")


def rows(lake: Path, table: str) -> pl.DataFrame:
    run = open_run(lake, "a")
    frame = run.scan(table).collect()
    run.close()
    return frame


def probe_with(wanted: Job, number: int, script: str, reporter: Telling) -> None:
    """Probe another policy in the same run, like a later iteration."""
    engine = EngineConfig(kind="scripted", script=script)
    policy = Served(name="policy", identity=f"policy-{number}", location="tiny", engine=engine)
    first = Checkpoint(
        checkpoint_id="policy-0",
        parent_id=None,
        reference_id=None,
        iteration=0,
        recipe="initial",
        path="tiny",
        steps=0,
        metrics="{}",
    )
    prompts = load_prompts(wanted.config.prompts, seed=0)
    with open_job(wanted, prompts, reporter, StopSignal()) as run:
        probe(replace(iteration(run, number, first), policy=policy))


def test_fall_is_an_alarm(tmp_path):
    wanted = job(tmp_path, f"assessment.probes={probes_file(tmp_path)}")
    run_loop(wanted, Telling(), StopSignal())
    notes = Telling()
    probe_with(wanted, 1, "scripts:forgetful_policy", notes)

    reader = open_run(tmp_path, "a")
    before, after = (turn["probes"] for turn in status(reader)["iterations"])
    events = reader.journal.events("alarm")
    reader.close()
    assert (before["name"]["passed"]["value"], before["name"]["alarm"]) == (1, False)
    assert (after["name"]["passed"]["value"], after["name"]["alarm"]) == (0, True)
    assert after["name"]["fall"] == {"value": 1, "stderr": 0, "n": 5}
    assert not after["word"]["alarm"]
    assert [event["benchmark"] for event in events] == ["probe:name"]
    assert [note for note in notes.notes if "name" in note]
    scores = rows(tmp_path, "scores")
    probe_with(wanted, 1, "scripts:forgetful_policy", Telling())
    assert rows(tmp_path, "scores").equals(scores)
