"""A model whose workers are on other machines takes nothing of this one, and says what it can."""

from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.configs.section import ConfigError, replicas_here, single_place
from lpfloop.loop.daemon.doctor import diagnose
from lpfloop.loop.daemon.hardware import devices
from lpfloop.loop.daemon.place_check import require_places
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.run import cluster_room
from lpfloop.loop.run.cluster_room import in_turns, is_crowded
from lpfloop.loop.run.served import Served, located
from lpfloop.loop.run.stage_places import CPU, ELSEWHERE, MAIN_THREAD, Whereabouts
from lpfloop.loop.run.tenants import Premises
from lpfloop.loop.run.turns import CLUSTER, Tenant
from lpfloop.policies.workers.ray_cluster import RayCluster, RayNode

RAY = ("policy.engine.place=ray", "reward.place=ray", "critic.engine.place=ray")


def configured(*settings: str) -> RunConfig:
    return load_config("tiny", None, settings, {})


def served(config: RunConfig, *, canary: Path | None = None) -> Served:
    return Served(
        name="tiny",
        identity="0" * 64,
        location=located("tiny"),
        engine=config.policy.engine,
        canary=canary,
    )


def show_cluster(monkeypatch: pytest.MonkeyPatch, *nodes: tuple[int, int]) -> None:
    """Let the cluster have nodes of so many GPUs and CPUs."""
    own = tuple(RayNode(host=str(n), gpus=g, cpus=c) for n, (g, c) in enumerate(nodes))
    cluster = RayCluster(nodes=own, free_gpus=0, free_cpus=0)
    monkeypatch.setattr(cluster_room, "ray_cluster", lambda: cluster)
    cluster_room._cluster.cache_clear()


@pytest.mark.parametrize(
    ("place", "here", "single"),
    [
        ("local", "auto", "local"),
        ("ray", None, "ray"),
        ("tcp", None, "local"),
        ({"local": 2, "ray": 3}, 2, "local"),
        ({"ray": 3}, None, "ray"),
    ],
)
def test_how_many_are_here_and_where_a_single_one_is(place, here, single) -> None:
    assert replicas_here(place, "auto") == here
    assert single_place(place) == single


def test_a_model_elsewhere_takes_no_device_here() -> None:
    config = configured("policy.engine.place={ray: 2}", "reward.place=tcp")
    premises, tiny = Premises.here(), located("tiny", "reward")
    assert premises.engine("a", located("tiny"), config.policy.engine) == Tenant(name="a")
    assert premises.scorer("b", tiny, config.reward) == Tenant(name="b")
    mixed = configured("policy.engine.place={local: 1, ray: 2}").policy.engine
    assert premises.engine("a", located("tiny"), mixed).devices


def test_stages_of_models_elsewhere_overlap_but_one_model_is_asked_by_one_at_a_time(
    monkeypatch, tmp_path
) -> None:
    show_cluster(monkeypatch, (0, 8))
    config = configured(*RAY)
    where = Whereabouts(config=config)
    policy, trained = where.of(served(config)), where.of(served(config, canary=tmp_path))
    reward = where.of_reward(None)
    assert policy & trained
    assert not (policy | trained) & reward
    assert CPU not in policy | reward
    assert not where.of_training("auto") & (policy | reward)
    assert ELSEWHERE not in (policy, reward)
    assert Whereabouts(config=configured("overlap=false", *RAY)).of_reward(None) == MAIN_THREAD


def test_models_take_turns_in_a_cluster_that_cannot_hold_them_all(monkeypatch) -> None:
    one = ("reward.place=ray", "reward.replicas=1")
    two = configured("policy.engine.tensor_parallel=2", "policy.engine.place={ray: 3}", *one)
    show_cluster(monkeypatch, (4, 8), (4, 8))
    assert not is_crowded(two)
    assert in_turns(Tenant(name="a"), two.policy.engine, two) == Tenant(name="a")
    show_cluster(monkeypatch, (4, 8), (2, 8))
    assert is_crowded(two)
    taken = in_turns(Tenant(name="a"), two.policy.engine, two)
    assert (taken.devices, taken.share) == (frozenset((CLUSTER,)), 1.0)
    other = in_turns(Tenant(name="b"), two.reward, two)
    assert other.share == pytest.approx(1 / 6)
    where = Whereabouts(config=two)
    assert where.of(served(two)) & where.of_reward(None) == {"the Ray cluster"}
    local = two.critic.engine
    assert in_turns(Tenant(name="c"), local, two) == Tenant(name="c")


def test_memory_of_machines_elsewhere_is_not_computed() -> None:
    from lpfloop.loop.daemon.memory_check import memory_of

    stages = memory_of(configured(*RAY[:2])).stages
    told = {stage.stage.split(" ")[0]: stage.unknown for stage in stages}
    assert "other machines" in told["policy"]
    assert "other machines" in told["reward"]
    assert all(stage.verdict != "does not fit" for stage in stages)
    assert devices().memory > 0


def test_online_methods_want_their_sampler_here(tmp_path) -> None:
    config = load_config("tiny", "ppo", ("policy.engine.place=tcp",), {})
    with pytest.raises(ConfigError, match=r"policy\.engine\.place: ppo gives its sampler new"):
        require_places(config, needed_roles(config))


def test_gpus_of_this_machine_are_not_given_to_a_model_elsewhere() -> None:
    config = configured("policy.engine.place=ray", "policy.engine.devices=[0]")
    with pytest.raises(ConfigError, match=r"policy\.engine\.devices=\[0\]: they are GPUs of this"):
        require_places(config, needed_roles(config))


def test_no_cluster_is_told_before_anything_is_written(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    found = diagnose(configured(*RAY), tmp_path / "lake")
    [told] = [finding for finding in found.findings if finding.about == "Ray"]
    assert told.status == "missing"
    assert "nobody answers at RAY_ADDRESS=127.0.0.1:9" in told.detail
    assert not found.ok
    assert not (tmp_path / "lake").exists()
