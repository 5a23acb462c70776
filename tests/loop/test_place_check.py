"""Models that are given GPUs which are not there are refused before anything is loaded."""

from pathlib import Path

import pytest
from gpus import show_gpus
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.section import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.doctor import diagnose
from lpfloop.loop.daemon.place_check import places_of
from lpfloop.loop.recipes.roles import needed_roles


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    "setting", ["policy.engine.devices=[0]", "critic.engine.devices=[0]", "reward.devices=[1]"]
)
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path, more, setting) -> None:
    lake = tmp_path / "lake"
    told = CliRunner().invoke(app, ["run", "--lake", str(lake), *more, "--set", setting])
    assert told.exit_code == 2
    assert setting.partition("=")[0] in told.stderr
    assert "no GPU is visible" in told.stderr
    assert told.stderr.count("\n") <= 3
    assert not lake.exists()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("policy.engine.devices=0", "must be a list of GPUs by their numbers, such as [0, 1], or"),
        ("reward.devices=[-1]", "must be a list of GPUs by their numbers, such as [0, 1], or auto"),
        ("critic.engine.devices=[true]", "must be a list of GPUs by their numbers"),
        ("reward.replicas=0", "must be a number from 1 on, or auto, not 0"),
        ("policy.engine.replicas=two", "must be a number from 1 on, or auto, not 'two'"),
    ],
)
def test_what_is_no_list_and_no_number_is_told_in_one_line(setting, told) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, None, (setting,), {})
    assert str(refused.value).startswith(f"--set: {setting.partition('=')[0]}: {told}")
    assert "\n" not in str(refused.value)


def test_too_many_replicas_are_refused_by_the_name_of_their_setting(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB", "24 GiB")
    given = ["run", "--lake", str(tmp_path / "lake"), "--set", "critic.engine.replicas=3"]
    told = CliRunner().invoke(app, given)
    assert (told.exit_code, "critic.engine.replicas=3" in told.stderr) == (2, True)


def test_every_model_that_runs_here_has_its_replicas(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB", "24 GiB")
    given = ("policy.engine.devices=[1]", "reward.replicas=1", "critic.engine.kind=scripted")
    config = load_config(None, None, given, {})
    places = places_of(config, needed_roles(config))
    assert {role: [g.numbers for g in groups] for role, groups in places.items()} == {
        "policy": [(1,)],
        "reward": [(0,)],
    }


def test_the_doctor_tells_the_replicas(monkeypatch, tmp_path) -> None:
    found = diagnose(load_config(None, None, ("policy.engine.replicas=2",), {}), tmp_path / "lake")
    told = [finding.detail for finding in found.findings if finding.about == "replicas"]
    assert told == ["policy: 2 replicas on the CPU"]
    refused = diagnose(load_config(None, None, ("reward.devices=[0]",), {}), tmp_path / "lake")
    assert [f.status for f in refused.findings if f.about == "replicas"] == ["missing"]
