"""The bottleneck in `status`, from the stages in a run's journal."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lpfloop.loop.daemon.bottleneck import busy
from lpfloop.loop.daemon.plan import Plan, PlannedDisk, PlannedRole
from lpfloop.loop.daemon.progress import progress
from lpfloop.stores.journal import Done, Journal

Told = Callable[..., dict]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Return the bottleneck of a run with these seconds of stages, `wall_s` in all."""

    def of(seconds: dict[str, float], *, wall_s: float, plan: Plan | None = None) -> dict:
        journal = Journal.create(tmp_path / str(len(list(tmp_path.iterdir()))), {})
        for stage, taken in seconds.items():
            journal.plan(1, stage, stage, lambda stage=stage: [stage])
            telemetry = {} if stage in ("pair", "train") else {"calls": 200, "tokens": 5000}
            journal.commit([Done(unit=stage, parts={}, telemetry=telemetry)])
            journal.add_seconds(1, stage, taken)
        found = busy(progress(journal, running=False), wall_s, plan)
        journal.close()
        return found

    return of


def plan(**engines: str) -> Plan:
    roles = (PlannedRole(role=r, model="m", engine=e, asked_by=()) for r, e in engines.items())
    return Plan(
        recipe="rlrf",
        iterations=1,
        seed=0,
        roles=tuple(roles),
        prompts={},
        groups={},
        dropped=0,
        stages=(),
        disk=PlannedDisk(rows=0, models=0, training=0),
        exact=True,
        ends=None,
    )


def test_shares_and_speeds_of_roles(told: Told) -> None:
    found = told({"sample": 100, "refine": 100, "critique:sample": 600, "pair": 0.5}, wall_s=800.5)
    critic, policy, rest = found["roles"]
    assert (critic["role"], critic["share"], critic["calls"]) == ("critic", 0.75, 200)
    assert (policy["role"], policy["share"], policy["tokens_per_s"]) == ("policy", 0.25, 50.0)
    assert policy["calls_per_s"] == 2.0
    assert (rest["role"], rest["calls"]) == ("lpfloop itself", 0)


def test_who_leads_is_waited_for(told: Told) -> None:
    seconds = {"sample": 310, "critique:sample": 960}
    found = told(seconds, wall_s=1000, plan=plan(policy="vllm", critic="openai"))
    assert "the critic most: it worked 96% of the time, the policy 31%" in found["bottleneck"]
    assert "(critic.engine.concurrency)" in found["bottleneck"]
    local = told({"sample": 960}, wall_s=1000, plan=plan(policy="vllm"))["bottleneck"]
    assert "more GPUs (policy.engine.devices, policy.engine.replicas) may help" in local
    trained = told({"sample": 300, "train": 700}, wall_s=1000)["bottleneck"]
    assert "waits for training most" in trained
    assert "training.processes=auto" in trained
