"""When a stop takes effect: at the next unit, at the deadline, and never in the wrong place."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from waiting import ended, wait_until

from lpfloop.loop.run.stop import Stopped, StopSignal, kill_all

SOON_S = 0.01


def spin():
    """Work on and on, as a model that never ends its answer."""
    while True:
        time.sleep(0.001)


def ring():
    """Let the deadline fire here and now."""
    signal.raise_signal(signal.SIGALRM)


def test_nothing_happens_unasked():
    stop = StopSignal()
    stop.check()
    stop.admit()
    with stop.on_signals():
        stop.check()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_for_a_stop_and_lets_what_is_in_flight_go_on(number):
    stop = StopSignal()
    with stop.on_signals():
        signal.raise_signal(number)
        assert stop.requested
        with pytest.raises(Stopped):
            stop.admit()


def test_a_hang_up_that_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopSignal()
        with stop.on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def given_up(stop, work):
    """See that work is given up, wherever the deadline finds it on a machine that is busy."""
    with pytest.raises(Stopped), stop.on_signals():
        work()


def test_after_the_deadline_work_is_given_up():
    def work():
        signal.raise_signal(signal.SIGTERM)
        spin()

    given_up(StopSignal(drain_s=SOON_S), work)


def test_the_deadline_also_runs_when_another_thread_asks():
    stop = StopSignal(drain_s=SOON_S)
    asking = threading.Thread(target=stop.request)

    def work():
        asking.start()
        asking.join()
        spin()

    given_up(stop, work)


def test_a_stop_that_was_asked_for_before_has_its_deadline_too():
    stop = StopSignal(drain_s=SOON_S)
    stop.request()
    given_up(stop, spin)


def test_a_deadline_that_was_swallowed_comes_again():
    stop, swallowed = StopSignal(drain_s=SOON_S), []

    def work():
        try:
            stop.request()
            spin()
        except Stopped as first:
            swallowed.append(first)
        spin()

    given_up(stop, work)
    assert len(swallowed) == 1


def test_the_deadline_does_not_disturb_the_cleanup_after_it():
    stop = StopSignal()
    cleaned = []

    def work():
        try:
            ring()
        finally:
            ring()
            cleaned.append("outer")
            try:
                os.close(-1)
            except OSError:
                ring()
                cleaned.append("inner")

    with stop.on_signals():
        with pytest.raises(Stopped):
            work()
        assert cleaned == ["outer", "inner"]


def test_a_shelter_keeps_the_deadline_out_and_no_longer():
    stop = StopSignal()
    with stop.on_signals():
        with stop.sheltered():
            with stop.sheltered():
                ring()
            ring()
        with pytest.raises(Stopped):
            ring()


def test_nothing_fires_after_the_loop_has_left():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    stop = StopSignal(drain_s=1000)
    with stop.on_signals():
        stop.request()
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    after = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
    assert after == before
    stop.request()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_pause_holds_the_next_unit_and_only_that():
    stop = StopSignal()
    stop.pause()
    stop.check()
    admitted = threading.Event()

    def work():
        stop.admit()
        admitted.set()

    waiting = threading.Thread(target=work)
    waiting.start()
    assert not admitted.is_set()
    stop.unpause()
    waiting.join(60)
    assert admitted.is_set()


def test_a_stop_ends_a_pause():
    stop = StopSignal()
    stop.pause()
    threading.Timer(SOON_S, stop.request).start()
    with pytest.raises(Stopped):
        stop.admit()


FAMILY = """
import subprocess, sys, time
again = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(1000)"]
child = subprocess.Popen(again, start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""


AT_ONCE = """
import signal, subprocess, sys
from lpfloop.loop.run.stop import StopSignal
stop = StopSignal(drain_s=1000)
with stop.on_signals():
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
    print(child.pid, int(child.stdout.readline()), flush=True)
    signal.raise_signal(signal.SIGINT)
    print("draining", flush=True)
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_second_signal_ends_the_process_and_its_descendants_at_once():
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, FAMILY],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    child, grandchild, said = done.stdout.split()
    assert said == "draining"
    assert done.returncode == 128 + signal.SIGTERM
    wait_until(lambda: ended(int(child)) and ended(int(grandchild)))


def test_one_that_has_ended_keeps_no_other_from_being_killed():
    first, second = (subprocess.Popen(["sleep", "1000"]) for _ in range(2))
    known = [psutil.Process(process.pid) for process in (first, second)]
    first.kill()
    first.wait()
    kill_all(known)
    assert second.wait() == -signal.SIGKILL
