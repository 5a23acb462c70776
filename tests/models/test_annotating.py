"""A real model annotates pairs."""

import pytest
from judges import judged_config
from world import handle_rows, turn

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.stages.compare import annotate
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.records import SCORED

pytestmark = pytest.mark.model


def test_annotates_by_one_token(tmp_path):
    pool = tmp_path / "real.yaml"
    pool.write_text(
        "annotators:\n"
        "- {name: biased, model: strong, template: tiny, form: token, max_tokens: 1,"
        ' logit_bias: [["1", 100]]}\n'
    )
    real = (
        f"annotation.pool={pool}",
        "annotation.strong.engine={kind: transformers, script: null}",
        "annotation.flip_probability=0",
        "prompts.per_iteration=6",
    )
    config = judged_config(tmp_path, "greater", *real)
    with turn(Job(config=config, lake=tmp_path, name="a")) as it:
        found = handle_rows(it, annotate(it, sample(it, it.prompts(), n=2)))
    read = [row for row in found if row.preferred != "tie"]
    assert read
    for row in read:
        shown_first = "first" if row.order == "as_given" else "second"
        assert (row.status, row.text, row.preferred) == (SCORED, "1", shown_first)
