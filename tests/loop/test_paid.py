"""What a judge was paid for is kept, whatever ends the run: over HTTP, with unreadable replies."""

from pathlib import Path

import pytest
from paid import IN_FLIGHT, KINDS, SIGNALS, PaidRun, paid_judge, spent

pytestmark = pytest.mark.crash

MORE = 1.02
"""What may be served in all, as a multiple of what is owed, besides what was in flight."""
CASES = [
    *(("critiques", name, share) for name in SIGNALS for share in (0.2, 0.5, 0.95)),
    *((kind, name, 0.5) for kind in ("comparisons", "grades", "reviews") for name in SIGNALS),
]


@pytest.fixture(scope="module")
def owed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How many replies each kind of run asks for if nothing ends it, by kind."""
    return {kind: _straight(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def _straight(folder: Path, kind: str) -> int:
    with paid_judge(KINDS[kind][0]) as judge:
        run = PaidRun(folder, kind, judge)
        run.go()
        assert "nothing was trained" in run.stderr
        assert spent(run.run).judge_calls == judge.served > 150
        return judge.served


@pytest.mark.parametrize(("kind", "name", "share"), CASES)
def test_what_was_paid_is_kept_and_told_truly(tmp_path, owed, kind, name, share):
    with paid_judge(KINDS[kind][0]) as judge:
        run = PaidRun(tmp_path, kind, judge)
        run.go(signal_number=SIGNALS[name], at=int(share * owed[kind]))
        served = judge.served
        assert share * owed[kind] - 1 <= served <= share * owed[kind] + 2 * IN_FLIGHT
        told = spent(run.run).judge_calls
        if name == "SIGTERM":
            assert told == served
        else:
            assert abs(told - served) <= IN_FLIGHT
        run.go()
        assert "nothing was trained" in run.stderr
        lost = 0 if name == "SIGTERM" else IN_FLIGHT
        assert judge.served <= MORE * owed[kind] + lost


def test_a_budget_loses_to_a_kill_only_what_was_in_flight(tmp_path, owed):
    with paid_judge(KINDS["critiques"][0]) as judge:
        limit = int(MORE * owed["critiques"]) + 3 * IN_FLIGHT
        run = PaidRun(tmp_path, "critiques", judge, limits=f"budget: {{judge_calls: {limit}}}")
        run.go(signal_number=SIGNALS["SIGKILL"], at=owed["critiques"] // 2)
        assert 0 <= spent(run.run).judge_calls - judge.served <= IN_FLIGHT
        run.go()
        assert "nothing was trained" in run.stderr
        assert judge.served <= spent(run.run).judge_calls <= limit
