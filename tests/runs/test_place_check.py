"""lpfloop refuses configured GPUs that do not exist, before it loads anything."""

from models import show_gpus
from typer.testing import CliRunner
from world import roles_of

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.machine_check import places_of


def test_every_model_has_its_replicas(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB", "24 GiB")
    given = ("policy.engine.devices=[1]", "reward.replicas=1", "critic.engine.kind=scripted")
    config = load_config(None, None, given, {})
    places = places_of(config, roles_of(config))
    assert {role: [g.numbers for g in groups] for role, groups in places.items()} == {
        "policy": [(1,)],
        "reward": [(0,)],
    }


def test_unusable_places_are_refused(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB", "24 GiB")
    lake = tmp_path / "lake"
    for setting in [
        "policy.engine.devices=[2]",
        "reward.devices=[-1]",
        "critic.engine.replicas=3",
        "policy.engine.replicas=two",
    ]:
        told = CliRunner().invoke(app, ["run", "--lake", str(lake), "--set", setting])
        assert (told.exit_code, setting.partition("=")[0] in told.stderr) == (2, True)
        assert not lake.exists()
