"""What takes machine after machine down is found; what was there by chance is answered."""

import pytest
from faulty import answer, deadly, ordered

from lpfloop.policies.engines.engine import (
    Batch,
    BatchResult,
    EngineError,
    ScoreBatch,
)
from lpfloop.policies.workers.inquest import LOSSES, Inquest
from lpfloop.policies.workers.work import GENERATE, MEASURE

LOST = "the connection to its machine broke"


def lost_until_examined(inquest: Inquest[Batch, BatchResult], *batches: Batch) -> None:
    for _ in range(LOSSES - 1):
        assert inquest.returned(batches, LOST) == [*batches]
        assert not inquest.open
    assert inquest.returned(batches, LOST) == []
    assert inquest.asks


def examined(inquest: Inquest[Batch, BatchResult]) -> tuple[dict[str, str], int]:
    """Examine all; return how requests ended, and how many more machines it took."""
    found, lost = dict[str, str](), 0
    while inquest.open:
        asked = inquest.next()
        assert not inquest.asks
        if deadly(asked):
            lost += 1
            assert inquest.returned([asked], LOST) == []
        else:
            for result in inquest.answered(asked, answer(asked)):
                found |= {c.request_id: c.finish_reason for c in result.completions}
    return found, lost


def test_only_the_request_that_takes_machines_down_fails() -> None:
    inquest = Inquest(GENERATE)
    lost_until_examined(inquest, ordered("a", "x"), ordered("b", "w", "die", "y"))
    found, lost = examined(inquest)
    assert found == {"a/0": "stop", "b/0": "stop", "b/1": "failed", "b/2": "stop"}
    assert lost == 4


def test_what_was_on_machines_that_were_taken_away_is_answered() -> None:
    inquest = Inquest(GENERATE)
    lost_until_examined(inquest, ordered("a", "x", "y"), ordered("b", "z"))
    assert examined(inquest) == ({"a/0": "stop", "a/1": "stop", "b/0": "stop"}, 0)


def test_a_machine_that_is_let_go_says_nothing_of_what_it_had() -> None:
    inquest = Inquest(GENERATE)
    batch = ordered("a", "x", "die")
    for _ in range(LOSSES + 1):
        assert inquest.returned([batch], "") == [batch]
    lost_until_examined(inquest, batch)
    asked = inquest.next()
    assert inquest.returned([asked], "") == []
    assert inquest.next() is asked


def test_a_slice_that_was_answered_is_not_suspected_any_more() -> None:
    inquest = Inquest(GENERATE)
    batch = ordered("a", "x")
    for _ in range(LOSSES - 1):
        inquest.returned([batch], LOST)
    assert [result.key for result in inquest.answered(batch, answer(batch))] == ["a"]
    assert inquest.returned([batch], LOST) == [batch]


def test_what_nobody_can_answer_is_no_fault_of_a_request() -> None:
    inquest = Inquest(GENERATE)
    lost_until_examined(inquest, ordered("a", "die"))
    with pytest.raises(EngineError, match="machine after machine was lost"):
        examined(inquest)
    # A request that was answered before shows that machines live on without it.
    inquest = Inquest(GENERATE)
    good = ordered("good", "x")
    assert [*inquest.answered(good, answer(good))]
    lost_until_examined(inquest, ordered("a", "die"))
    assert examined(inquest) == ({"a/0": "failed"}, 1)


def test_what_cannot_be_left_out_ends_the_stream() -> None:
    inquest = Inquest(MEASURE)
    asked = ScoreBatch(key="a", requests=())
    for _ in range(LOSSES - 1):
        assert inquest.returned([asked], LOST) == [asked]
    with pytest.raises(EngineError, match="were lost with the same requests"):
        inquest.returned([asked], LOST)
