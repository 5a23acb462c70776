"""What a critic, a grader or a reviewer said that could not be read can be asked for again."""

from functools import partial

from lpfloop.loop.stages.made_of_judgements import kind_of, made_of

JUDGED = [
    ("critique:sample", "critiques"),
    ("grade:complete:overall", "grades"),
    ("annotate:sample:one", "comparisons"),
    ("prompts:review", "reviews"),
    ("critique:evaluate:mine-1234", None),
    ("train", None),
]


def test_stage_is_known_by_label():
    for label, noun in JUDGED:
        kind = kind_of(label)
        assert (None if kind is None else kind.noun) == noun


REFLECTED = (
    "sample critique:sample reward:sample refine critique:refine reward:refine "
    "annotate:0123456789ab pair balance:pair train evaluate:held-out "
    "critique:evaluate:held-out measure:held-out measure:mine-1234 assess:held-out"
)
BEST = (
    "best critique:best measure:best-of-4 compare:best:one assess:best-of-4 "
    "best:fewer compare:best:fewer:one assess:best-of-2"
)
BEFORE = REFLECTED.partition(" train")[0]


def test_only_what_was_made_is_forgotten():
    for label, names, made in [
        ("critique:sample", BEFORE, "refine critique:refine reward:refine pair balance:pair"),
        ("critique:refine", BEFORE, "pair balance:pair"),
        ("critique:evaluate:held-out", REFLECTED, "measure:held-out"),
        ("critique:best", BEST, "measure:best-of-4"),
        ("compare:best:one", BEST, "assess:best-of-4 assess:best-of-2"),
        ("compare:best:fewer:one", BEST, "assess:best-of-2"),
    ]:
        found = made_of((1, label), [(1, name) for name in names.split()], prompts_change=False)
        assert found == [(1, name) for name in made.split()]


def test_same_prompts_leave_iterations():
    stages = [(0, "prompts:review"), (0, "prompts:quality"), (1, "sample"), (1, "critique:sample")]
    made = partial(made_of, stages[0], stages)
    assert made(prompts_change=False) == stages[1:2]
    assert made(prompts_change=True) == stages[1:]
