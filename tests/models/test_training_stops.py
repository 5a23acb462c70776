"""A paused training and a stopped training both resume from the step that they had reached."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from processes import wait_until
from world import Silent, Telling, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.policies.trainers.work_folder import (
    STEPS,
    new_lines,
    parse_row,
    read_orders,
    read_steps,
)
from lpfloop.stores.digest import run_digest
from lpfloop.stores.lake import RunReader, run_folder

pytestmark = [pytest.mark.model, pytest.mark.crash]

LONG_S = 600
SETTINGS = (
    "policy.engine.kind=transformers",
    "policy.sampling.max_tokens=16",
    "critic.engine.kind=scripted",
    "critic.engine.script=world:critic",
    "reward.model=none",
    "prompts.held_out_share=0.25",
    "prompts.per_iteration=6",
    "prompts.max_test=2",
    "prompts.max_dev=2",
    "recipe.n=6",
    "recipe.m=0",
    "training.min_pairs=1",
    "training.dpo.batch_size=1",
    "training.dpo.micro_batch_size=1",
    "training.dpo.epochs=8",
    "iterations=1",
)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    source = f"prompts.source={write_prompts(tmp_path)}"
    return load_config("tiny", "rlrf", (*SETTINGS, source), {})


def made(folder: Path) -> int:
    """Return the step that the training in progress has reached; 0 without a training."""
    steps = [read_steps(path) for path in folder.glob("work/*/metrics.jsonl")]
    return steps[0][-1].step if steps and steps[0] else 0


def hold(folder: Path, ask: Callable[[], None]) -> int:
    """Ask a training that stopped itself to end, then continue it; return its step."""
    held: list[psutil.Process] = []
    (work,) = {path.parent for path in folder.glob("work/*/metrics.jsonl")}

    def stopped() -> bool:
        rows = map(parse_row, new_lines(work / STEPS, 0)[0])
        pids = [row["pid"] for row in rows if row and row["event"] == "start"]
        with suppress(psutil.NoSuchProcess):
            held[:] = map(psutil.Process, pids[-1:])
            return held[0].status() == psutil.STATUS_STOPPED
        return False

    wait_until(stopped, timeout_s=LONG_S)
    reached = made(folder)
    ask()
    wait_until(lambda: read_orders(work).end, timeout_s=LONG_S)
    held[0].resume()
    return reached


def test_pause_and_stop_keep_bits(tmp_path, config, monkeypatch):
    run_loop(Job(config=config, lake=tmp_path / "straight", name="a"), Silent(), StopSignal())
    whole = run_folder(tmp_path / "straight", "a")

    folder, stop, reporter = run_folder(tmp_path / "lake", "a"), StopSignal(), Telling()

    reached: list[int] = []

    def at_steps() -> list[str]:
        return [note for note in reporter.notes if " step " in note]

    def operate() -> None:
        wait_until(lambda: made(folder) >= 1, timeout_s=LONG_S)
        reached.append(hold(folder, stop.pause))
        wait_until(lambda: len(at_steps()) == 1, timeout_s=LONG_S)
        stop.unpause()
        reached.append(hold(folder, stop.request))

    operator = threading.Thread(target=operate, daemon=True)
    operator.start()
    often = config.training.model_copy(update={"checkpoint_minutes": 0.0})
    saving = config.model_copy(update={"training": often})
    monkeypatch.setenv("LPFLOOP_FAILPOINT", "trainer.checkpoint.sealed#3:stop")
    with pytest.raises(Stopped):
        run_loop(Job(config=saving, lake=tmp_path / "lake", name="a"), reporter, stop)
    operator.join()
    monkeypatch.delenv("LPFLOOP_FAILPOINT")
    assert reached[1] >= reached[0] + 3
    first, second = at_steps()
    assert f"step {made(folder)}" in second
    assert first != second

    run_loop(Job(config=config, lake=tmp_path / "lake", name="a"), reporter, StopSignal())
    assert run_digest(folder) == run_digest(whole)
    log = (folder / "logs" / "train.log").read_text()
    assert log.count("starting afresh") == 1
    assert log.count("resuming from") == 2
    assert not list((folder / "work").iterdir())
    reader = RunReader(folder)
    steps = reader.scan("statistics").collect()
    (trained,) = reader.scan("checkpoints", iteration=1).collect()["steps"]
    reader.close()
    for name in ("loss", "rewards/margins"):
        told = steps.filter(metric=name)
        assert sorted(told["step"]) == list(range(1, trained + 1))
