"""Trainings that cannot be fitted as they are told are refused before anything is paid."""

from pathlib import Path

import pytest
from gpus import show_gpus
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.training_check import faint_rates, require_fit

LORA = "training.lora.r=8"
NARROW = "training.weights=bfloat16"
QLORA = (LORA, "training.lora.quantise=nf4")


def refused(settings: tuple[str, ...]) -> str:
    with pytest.raises(ConfigError) as error:
        require_fit(load_config(None, None, settings, {}))
    return str(error.value)


@pytest.mark.parametrize(
    ("settings", "more", "told"),
    [
        (QLORA, [], "needs an NVIDIA GPU"),
        (QLORA, ["--dry-run"], "needs an NVIDIA GPU"),
        (("training.attention=flash_attention_2",), [], "needs an NVIDIA GPU"),
        ((LORA, "training.lora.targets=[q_proj, wo]"), [], "'wo'"),
    ],
)
def test_a_run_is_refused_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, settings: tuple[str, ...], more: list[str], told: str
) -> None:
    lake = tmp_path / "lake"
    given = [part for setting in settings for part in ("--set", setting)]
    said = CliRunner().invoke(app, ["run", "--lake", str(lake), *more, *given])
    assert (said.exit_code, told in said.stderr) == (2, True)
    assert said.stderr.count("\n") <= 4
    assert not lake.exists()


def test_layers_that_are_not_there_are_answered_with_those_that_are(tmp_path: Path) -> None:
    given = ["--set", LORA, "--set", "training.lora.targets=[wo]"]
    said = CliRunner().invoke(app, ["doctor", "--lake", str(tmp_path / "lake"), *given])
    assert said.exit_code != 0
    told = " ".join(said.stdout.split())
    assert "down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj" in told


@pytest.mark.parametrize(
    ("settings", "package"),
    [
        (QLORA, "bitsandbytes"),
        (("training.optimizer=adamw_8bit",), "bitsandbytes"),
        (("training.liger=true",), "liger-kernel"),
        (("training.attention=flash_attention_3",), "flash-attn-3"),
    ],
)
def test_on_a_gpu_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: tuple[str, ...], package: str
) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB")
    assert f"pip install {package}" in refused(settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (("training.lora.quantise=nf4",), "training.lora.r is 0"),
        ((LORA, NARROW), "training.weights"),
        ((NARROW, "training.optimizer=adamw_8bit"), "training.optimizer"),
    ],
)
def test_two_settings_that_exclude_one_another_are_refused(
    settings: tuple[str, ...], named: str
) -> None:
    assert named in refused(settings)


@pytest.mark.parametrize(
    "settings",
    [
        (LORA, "training.lora.alpha=32", "training.publish=bfloat16"),
        (NARROW,),
        ("training.attention=sdpa", "training.recompute=always"),
    ],
)
def test_what_can_be_trained_here_is_not_refused(settings: tuple[str, ...]) -> None:
    require_fit(load_config(None, None, settings, {}))


@pytest.mark.parametrize("said", ["q_proj,v_proj", "[q_proj, v_proj]"])
def test_layers_are_named_in_either_form(said: str) -> None:
    config = load_config(None, None, (LORA, f"training.lora.targets={said}"), {})
    assert config.training.lora.targets == ("q_proj", "v_proj")


@pytest.mark.parametrize("said", ["[]", "", "3", "'q_proj,'"])
def test_what_names_no_layer_is_refused_in_a_sentence(said: str) -> None:
    with pytest.raises(ConfigError, match="all-linear, or names of layers") as error:
        load_config(None, None, (LORA, f"training.lora.targets={said}"), {})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "remarks"),
    [
        ((), 0),
        (("training.lora.r=8", "training.dpo.learning_rate=1e-4"), 0),
        (("training.lora.r=8", "training.dpo.learning_rate=2e-6"), 1),
        (("training.lora.r=8", "training.sft.learning_rate=2e-6"), 0),
        (("training.lora.r=8", "training.sft.learning_rate=2e-6", "recipe.train=rs"), 1),
    ],
)
def test_a_rate_that_is_small_for_adapters_is_remarked(
    settings: tuple[str, ...], remarks: int
) -> None:
    told = list(faint_rates(load_config("tiny", "rlrf", settings, {})))
    assert len(told) == remarks
    assert all("learning_rate=2e-06" in remark for remark in told)
