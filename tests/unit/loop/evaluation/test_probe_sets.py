"""Sets of probes: read strictly; an alarm if a share of passed ones falls."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.critics.verify import Verdict
from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.probe import passes_probe
from lpfloop.loop.evaluation.probe_sets import read_probes
from lpfloop.loop.lake.query.forgetting import (
    FALL,
    FALL_OVERALL,
    PASSED,
    alarming,
    falls,
)
from lpfloop.stores.records import Evaluation, Score


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scores(values, *, number=0, benchmark="probe:x"):
    return [
        Score(
            iteration=number,
            checkpoint_id=f"m{number}",
            benchmark=benchmark,
            metric=PASSED,
            prompt_id=f"p{place}",
            candidate_id=f"c{place}",
            value=float(value),
        )
        for place, value in enumerate(values)
    ]


PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30)


@given(PAIRS, st.randoms())
def test_fall_is_the_mean_difference(pairs, shuffler):
    before, after = scores(b for b, _ in pairs), scores((a for _, a in pairs), number=1)
    shuffler.shuffle(before)
    (fall,) = falls(FALL, before, after)
    lost = [float(b) - float(a) for b, a in pairs]
    mean = sum(lost) / len(lost)
    spread = math.sqrt(sum((x - mean) ** 2 for x in lost) / (len(lost) - 1) / len(lost))
    assert math.isclose(fall.value, mean, abs_tol=1e-12)
    assert math.isclose(fall.stderr, spread, abs_tol=1e-12)
    assert (fall.n, fall.iteration, fall.checkpoint_id) == (len(pairs), 1, "m1")
    assert alarming(fall) == (fall.value > fall.stderr)


def test_alarms(subtests):
    for metric, value, stderr, benchmark, alarm in [
        (FALL, 0.2, 0.1, "probe:x", True),
        (FALL_OVERALL, 0.2, 0.1, "probe:x", True),
        (FALL, 0.1, 0.1, "probe:x", False),
        (FALL, 0.2, None, "probe:x", False),
        (FALL, 0.2, 0.1, "held-out", False),
    ]:
        with subtests.test(metric=metric, value=value, stderr=stderr, benchmark=benchmark):
            fields = {"benchmark": benchmark, "metric": metric, "value": value, "stderr": stderr}
            number = Evaluation(iteration=1, checkpoint_id="m1", n=9, **fields)
            assert alarming(number) == alarm


def test_answer_that_passes():
    assert passes_probe(Verdict((), 1, "right"))
    assert passes_probe(Verdict((("general_fulfilled", 1.0),), 1, "fulfilled"))
    assert not passes_probe(
        Verdict((("math_accuracy", 1.0), ("general_fulfilled", 0.0)), 1, "right")
    )
    assert not passes_probe(Verdict((("general_fulfilled", 0.0),), 0, "partly_fulfilled"))
    assert not passes_probe(Verdict((), None, "no_check"))


CHECK = {"checks": [{"kind": "json_valid", "argument": ""}]}


def test_refused_files(tmp_path, subtests):
    for row, reason in [
        ({"prompt": "a", **CHECK}, "'probe' must be a text"),
        ({"prompt": "a", "probe": "x"}, "nothing decides whether an answer passes"),
        ({"prompt": "b", "probe": "y", **CHECK}, "appears a second time"),
    ]:
        with subtests.test(row=row, reason=reason):
            path = written(tmp_path / "p.jsonl", [{"prompt": "b", "probe": "x", **CHECK}, row])
            with pytest.raises(InputError, match=f"p.jsonl, line 2: .*{reason}"):
                read_probes(path)
