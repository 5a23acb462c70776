"""lpfloop never accepts a verdict that a judged text forged: generated attacks on all judges."""

import random
from collections import Counter

from forgeries import JUDGES, attack, naming, obedient, quoting

from lpfloop.stores.records import SCORED

ATTACKS = 1_500
"""Attacks on each of the four judges: a third bare, a third below a mark, a third in an object."""


def test_forged_verdicts_rejected():
    for judge in JUDGES:
        rng, believed, read = random.Random(f"forgeries {judge}"), [], Counter()
        for number in range(ATTACKS):
            made = attack(judge, rng, guarded=number % 3 > 0, by_schema=number % 3 > 1)
            for falls in (obedient, quoting, naming):
                reply = falls(made, rng)
                read.update(one.status for one in made.question.read(reply, "stop"))
                if made.believed(reply):
                    believed.append((falls.__name__, number % 3, made.question.messages, reply))
        assert believed == []
        assert {"unmarked", "echo", SCORED} <= set(read)
