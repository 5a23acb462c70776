"""What the guide says of published data is what the studies find."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = {
    "gsm8k-systems": ("2,564 of 2,564", "(2,564 of 2,564)"),
    "qwen-maj8": ("335 of 336", "(335 of 336)"),
    "math500": ("255 of 255", "(255 of 255)"),
    "svamp": ("485 of 485", "(485 of 485)"),
    "ifeval": ("428 of 428", "(428 of 428)"),
    "factscore": ("42.6 % over 182 answers", "0.4258 over 182 answers"),
    "llmbar-replies": ("933 of 936", "(933 of 936)"),
    "pandalm-replies": ("263 of 496", "(263 of 496)"),
    "justeval-replies": ("1,874 of 1,890", "(1,874 of 1,890)"),
    "prometheus": ("none of 408", "(0 of 408)"),
}
"""What the guide says of a set, and what its study prints."""


@pytest.fixture
def published_data(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import published_data

    return published_data


@pytest.mark.parametrize("name", FIGURES)
def test_the_guides_figures_are_those_of_the_study(name, published_data, shared_data, capsys):
    published_data.main([name, "--data", str(shared_data)])
    printed = capsys.readouterr().out
    told, found = FIGURES[name]
    assert found in printed
    rows = re.findall(rf"^\| `{name}`.*", (ROOT / "docs/judges.md").read_text(), re.MULTILINE)
    assert len(rows) == 1
    assert told in rows[0]
    if name.endswith("replies") or name == "prometheus":
        assert re.search(r"invented +0\b", printed)


def test_what_is_no_set_is_refused(published_data, tmp_path):
    with pytest.raises(SystemExit):
        published_data.main(["unseen", "--data", str(tmp_path)])
