"""Measures of the studies in studies/, and loading a study."""

import math
from pathlib import Path

import polars as pl
import pytest
from chatglm_reference import kl_at, optimised, rise
from farm_figures import rank_correlation

from lpfloop.configs.mistakes import ConfigError
from lpfloop.loop.studies.study import load_studies, load_study
from lpfloop.loop.studies.study_pages import write_index

SHIPPED = Path(__file__).parents[4] / "studies"
PAGES = SHIPPED.parent / "results"


def test_rank_correlation_with_ties():
    assert rank_correlation([3, 2, 1], [30, 20, 10]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert rank_correlation([1, 1], [1, 2]) is None


def test_ppo_steps_and_kl():
    rows = pl.DataFrame(
        {
            "step": [1, 1, 2, 2],
            "reward": [-1.0, 1.0, 1.0, 3.0],
            "score": [0.0, 0.0, 2.0, 2.0],
            "kl": [0.0, 0.0, 1.0, 3.0],
        }
    )
    steps = optimised(rows)
    assert (steps[0].reward, steps[1].reward) == (0, 2)
    assert steps[0].deviation == pytest.approx(math.sqrt(2))
    assert rise(steps) == 2
    assert kl_at(steps, 1.0) == 1.0
    assert kl_at(steps, 0.0) == 0.0
    with pytest.raises(ValueError, match="no step reaches"):
        kl_at(steps, 2.5)


def test_shipped_studies_and_index(tmp_path):
    studies = load_studies(SHIPPED)
    assert {page.stem for page in (PAGES / "studies").glob("*.md")} <= {s.name for s in studies}
    (tmp_path / "studies").symlink_to(PAGES / "studies")
    index = write_index(tmp_path, studies, force=False)
    assert index.read_bytes() == (PAGES / "studies.md").read_bytes()


@pytest.mark.parametrize(
    ("source", "said"),
    [("1", "STUDY = Study"), ("import no_such_module", "line 1"), (None, "not a Python file")],
)
def test_file_without_a_study(tmp_path, source, said):
    file = tmp_path / "mine.py"
    if source is not None:
        file.write_text(source)
    with pytest.raises(ConfigError, match=said):
        load_study(file)
