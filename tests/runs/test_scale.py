"""`lpfloop scale`: arithmetic that follows the recipe, and a page that says what it says."""

from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.loop.daemon.scale import Rates, ScaledRun
from lpfloop.loop.daemon.scale_lines import scale_lines
from lpfloop.loop.daemon.scale_run import scaled

pytestmark = pytest.mark.slow

REWARD = "reward.model=reward-13b"


def of_paper(folder: Path, count: int, *settings: str, **rates: int) -> ScaledRun:
    config = load_config("paper", "rlrf", (REWARD, *settings), {})
    return scaled(config, folder / "lake", Rates(**rates), count)


def test_gpu_hours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_paper(tmp_path, 1000, drawn_s=100, read_s=1000, gpus=10)
    sample = next(verb for verb in found.verbs if verb.verb == "sample")
    seconds = sample.answer_tokens / 100 + sample.prompt_tokens / 1000
    assert sample.gpu_hours == pytest.approx(13 / 8 * seconds / 3600)
    assert found.hours == pytest.approx(found.total.gpu_hours / 10)
    assert found.total.gpu_hours == pytest.approx(sum(v.gpu_hours for v in found.verbs))


def test_limits_that_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small, large = (
        "\n".join(scale_lines(of_paper(tmp_path, count, gpus=gpus)))
        for count, gpus in ((1000, 10), (10**9, 10**7))
    )
    assert "among several runs" in large
    assert "among several runs" not in small
