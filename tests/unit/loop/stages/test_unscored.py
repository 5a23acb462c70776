"""Unreadable replies of a critic, grader or reviewer can be requested again."""

from lpfloop.loop.stages.unscored import kind_of

JUDGED = [
    ("critique:sample", "critiques"),
    ("grade:complete:overall", "grades"),
    ("annotate:sample:one", "comparisons"),
    ("prompts:review", "reviews"),
    ("critique:evaluate:dev", "critiques"),
    ("critique:evaluate:step-5:held-out:sums", "critiques"),
    ("critique:evaluate:mine-1234abcd", None),
    ("train", None),
]


def test_stage_found_by_label():
    for label, noun in JUDGED:
        kind = kind_of(label)
        assert (None if kind is None else kind.noun) == noun
