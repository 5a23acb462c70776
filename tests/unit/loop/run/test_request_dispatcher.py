"""A stage's batches, taken by an engine that has others in flight."""

import threading
from contextlib import nullcontext
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

from lpfloop.loop.run.request_dispatcher import RequestDispatcher
from lpfloop.stores.journal_reader import Cost, Unit


def source_under(budget: Any) -> RequestDispatcher[Any]:
    """Return the source of one unit with one request; waiting fails the test."""
    question = SimpleNamespace(settled=False, attempts=0, request=lambda: "a request")
    client = SimpleNamespace(
        most=lambda requests: Cost(tokens=len(requests)),
        expected_cost=lambda requests: Cost(tokens=len(requests)),
        batch=lambda key, requests, again: (key, requests, again),
    )
    stage = SimpleNamespace(
        flow=SimpleNamespace(ended=False, broken=False, stop=SimpleNamespace(paused=False)),
        rest=nullcontext,
        commits_later=False,
        planned=SimpleNamespace(iteration=0, stage="sample"),
        pending=[Unit(key="u", chunk=0)],
        waits=lambda _: False,
    )
    journal = SimpleNamespace(events=lambda _: [])
    run = SimpleNamespace(budget=budget, store=SimpleNamespace(journal=journal))
    return RequestDispatcher(
        cast("Any", run),
        cast("Any", stage),
        client=cast("Any", client),
        work=lambda _: [cast("Any", question)],
        commit=lambda *_: None,
    )


def test_budget_spent_by_another_stage_meanwhile() -> None:
    """`take` returns None: the engine continues with the requests in flight."""
    looks = chain([True, False], repeat(True))
    budget = SimpleNamespace(
        deciding=threading.RLock(),
        limited=True,
        in_flight=True,
        spending=True,
        expects=lambda _: True,
        fits=lambda _: next(looks),
        check_limits=lambda: None,
        has_kept=lambda _: False,
        open=lambda *_: None,
        reserve=lambda *_, slice_: None,
    )
    source = source_under(budget)
    assert source.take() is None
    assert source.take() == ("u/0", ["a request"], False)
