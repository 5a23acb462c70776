"""The search for poison: it finds exactly the killing requests, and never blames a machine."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from workers import answer, deadly, ordered

from lpfloop.policies.engines.engine import Batch, BatchResult, Completion
from lpfloop.policies.workers.model_process import GENERATE
from lpfloop.policies.workers.poison import CONVICTING, MOST_DEATHS, PoisonSearch

GOOD = ordered("good", "x")


def run(search: PoisonSearch[Batch, Completion]) -> tuple[list[BatchResult], int, bool]:
    """Simulate a worker that dies of "die"; return results, deaths, and whether it was given up."""
    results: list[BatchResult] = []
    deaths = 0
    while not search.is_over:
        asked = search.ask(last_chance=False)
        if asked is None:
            return results, deaths, True
        if deadly(asked):
            deaths += 1
            search.note_death("killed")
        else:
            results += search.take_result(answer(asked))
    return results, deaths, False


def batches(sizes: Sequence[Sequence[bool]]) -> list[Batch]:
    return [
        ordered(str(number), *("die" if dies else "live" for dies in batch))
        for number, batch in enumerate(sizes)
    ]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=4))
def test_deadly_requests(sizes: list[list[bool]]) -> None:
    wanted = batches(sizes)
    results, deaths, given_up = run(PoisonSearch(wanted, GENERATE, GOOD))
    assert not given_up
    assert sorted(r.key for r in results) == sorted(b.key for b in wanted)
    found = {c.request_id: c for r in results for c in r.answers}
    for batch in wanted:
        [result] = (r for r in results if r.key == batch.key)
        assert [c.request_id for c in result.answers] == [r.request_id for r in batch.requests]
        for request in batch.requests:
            dies = request.messages[-1].content == "die"
            assert (found[request.request_id].finish_reason == "failed") == dies
    poisoned = sum(map(sum, sizes))
    split = sum(any(batch) and len(batch) > 1 for batch in sizes) * (len(sizes) > 1)
    alone_before = sizes == [[True]]
    assert deaths == CONVICTING * (poisoned + split) - alone_before


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_sick_worker(sizes: list[int]) -> None:
    search = PoisonSearch(batches([[True] * size for size in sizes]), GENERATE, None)
    results, _, given_up = run(search)
    assert given_up
    assert not results


def test_end_of_search() -> None:
    search = PoisonSearch(batches([[True] * MOST_DEATHS, [False]]), GENERATE, GOOD)
    results, deaths, given_up = run(search)
    assert given_up
    assert deaths == MOST_DEATHS + 1
    assert [r.key for r in results] == ["1"]
