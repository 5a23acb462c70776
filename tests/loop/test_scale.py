"""`lpfloop scale`: arithmetic that follows the recipe, and a page that says what it says."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lpfloop
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.scale import Rates, ScaledRun, size_of
from lpfloop.loop.daemon.scale_lines import scale_lines
from lpfloop.loop.daemon.scale_run import scaled

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
SHOWN = re.compile(r"```sh\nlpfloop (scale [^\n]*)\n```\n\n```text\n(.*?)```", re.DOTALL)
REWARD = "reward.model=reward-13b"


def call(*words: str, folder: Path) -> Result:
    return CliRunner().invoke(app, [*words, "--lake", str(folder / "lake")])


def of_paper(folder: Path, count: int, *settings: str, **rates: int) -> ScaledRun:
    config = load_config("paper", "rlrf", (REWARD, *settings), {})
    return scaled(config, folder / "lake", Rates(**rates), count)


@pytest.mark.parametrize(("command", "printed"), SHOWN.findall(PAGE))
def test_the_page_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, printed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = call(*shlex.split(command), folder=tmp_path)
    assert (told.exit_code, told.stdout) == (Exit.DONE, printed)


def test_a_hundred_times_the_prompts_take_a_hundred_times_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    once, more = (of_paper(tmp_path, count) for count in (80_000, 8_000_000))
    by_verb = {verb.verb: verb for verb in more.verbs}
    for verb in once.verbs:
        if verb.verb == "others":
            continue
        many = by_verb[verb.verb]
        assert many.requests == pytest.approx(100 * verb.requests, rel=0.001)
        assert many.answer_tokens == pytest.approx(100 * verb.answer_tokens, rel=0.001)
        assert many.gpu_hours == pytest.approx(100 * verb.gpu_hours, rel=0.01)
        assert many.row_bytes == pytest.approx(100 * verb.row_bytes, rel=0.01)
    assert once.verbs[2].verb == "sample"
    assert once.verbs[2].requests == 2 * 80_000 * 10


def test_gpu_hours_are_tokens_by_rates_and_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = of_paper(tmp_path, 1000, drawn_s=100, read_s=1000, gpus=10)
    sample = next(verb for verb in found.verbs if verb.verb == "sample")
    seconds = sample.answer_tokens / 100 + sample.prompt_tokens / 1000
    assert sample.gpu_hours == pytest.approx(13 / 8 * seconds / 3600)
    assert found.hours == pytest.approx(found.total.gpu_hours / 10)
    assert found.total.gpu_hours == pytest.approx(sum(v.gpu_hours for v in found.verbs))


def test_a_model_at_an_endpoint_costs_money_and_no_gpu_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judge = ("critic.model=http://judge/v1", "critic.engine.model_name=gpt-4o")
    found = of_paper(tmp_path, 1000, *judge, "prices.table=example")
    critique = next(verb for verb in found.verbs if verb.verb == "critique")
    assert critique.gpu_hours == 0
    tokens = critique.prompt_tokens * 2.5 + critique.answer_tokens * 10
    assert critique.money == pytest.approx(tokens / 1e6)
    assert critique.money > 0
    unpriced = of_paper(tmp_path, 1000, *judge)
    assert any("no price is known of gpt-4o" in line for line in scale_lines(unpriced))


def test_ones_own_prompts_are_read_and_stand_for_more(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(json.dumps({"prompt": f"Why {n}?"}) for n in range(40)))
    more = {"reward.model": "none", "prompts.held_out_share": 0, "prompts.dev_share": 0}
    given = {"config": "paper", "variant": "rlrf", "prompts": file, "lake": tmp_path / "lake"}
    few, many = (
        lpfloop.scale(**given, set={**more, "reward.model": "r-1b"}, prompt_count=count)
        for count in (None, 4000)
    )
    assert (few["prompts"], many["prompts"], many["invented"]) == (40, 4000, False)
    assert many["total"]["requests"] >= 99 * few["total"]["requests"]
    assert not (tmp_path / "lake").exists()


def test_bad_input_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    absent = call("scale", "--config", "paper", "--set", REWARD, folder=tmp_path)
    assert absent.exit_code == Exit.BAD_INPUT
    assert absent.stderr.strip() == (
        "error: there are no prompts at prompts.jsonl: give --prompts FILE, or --prompt-count N, "
        "and prompts of a length are invented"
    )
    for words in (("--gpu-count", "0"), ("--drawn-s", "0"), ("--prompt-count", "-1")):
        refused = call("scale", "--config", "tiny", *words, folder=tmp_path)
        assert refused.exit_code == Exit.BAD_INPUT, words
    with pytest.raises(ConfigError, match="no preset"):
        lpfloop.scale("nowhere", lake=tmp_path)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("meta-llama/Llama-2-13b-chat-hf", 13),
        ("Qwen3-0.6B", 0.6),
        ("models/reward-8B-v2", 8),
        ("gpt2", None),
        ("1bit-70b", 70),
    ],
)
def test_a_name_can_tell_a_models_size(name: str, size: float | None) -> None:
    assert size_of(name) == size


def test_lines_fit_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for count in (1, 10**9):
        assert max(map(len, scale_lines(of_paper(tmp_path, count)))) <= 80
