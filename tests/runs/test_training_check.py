"""lpfloop refuses trainings that cannot fit as configured, before it pays for anything."""

from pathlib import Path

import pytest
from models import show_gpus
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.machine_check import require_fit

LORA = "training.lora.r=8"
QLORA = (LORA, "training.lora.quantise=nf4")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB")


def refused(settings: tuple[str, ...]) -> str:
    with pytest.raises(ConfigError) as error:
        require_fit(load_config(None, None, settings, {}))
    return str(error.value)


def test_refused_run_writes_no_file(tmp_path: Path) -> None:
    for settings, more, told in [
        (QLORA, ["--dry-run"], "GPU"),
        ((LORA, "training.lora.targets=[q_proj, wo]"), [], "'wo'"),
    ]:
        lake = tmp_path / "lake"
        given = [part for setting in settings for part in ("--set", setting)]
        said = CliRunner().invoke(app, ["run", "--lake", str(lake), *more, *given])
        assert (said.exit_code, told in said.stderr) == (2, True)
        assert not lake.exists()


def test_missing_package_reported(gpu: None) -> None:
    for settings, package in [
        (QLORA, "bitsandbytes"),
        (("training.liger=true",), "liger-kernel"),
    ]:
        assert package in refused(settings)


def test_settings_exclude_each_other() -> None:
    assert "training.lora.r" in refused(("training.lora.quantise=nf4",))
    require_fit(load_config(None, None, (LORA, "training.publish=bfloat16"), {}))


def test_names_of_layers() -> None:
    for said in ["[]", "3", "'q_proj,'"]:
        with pytest.raises(ConfigError, match="all-linear"):
            load_config(None, None, (LORA, f"training.lora.targets={said}"), {})
    for named in ("q_proj,v_proj", "[q_proj, v_proj]"):
        config = load_config(None, None, (LORA, f"training.lora.targets={named}"), {})
        assert config.training.lora.targets == ("q_proj", "v_proj")
