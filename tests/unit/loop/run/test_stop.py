"""When a stop takes effect: at the next unit, at the deadline, and only at safe places."""

import os
import signal

import pytest

from lpfloop.loop.run.stop import Stopped, StopSignal


def ring():
    """Raise the deadline's signal now."""
    signal.raise_signal(signal.SIGALRM)


def test_signal_asks_for_a_stop():
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
        stop = StopSignal()
        with stop.on_signals():
            signal.raise_signal(number)
            assert stop.requested
            with pytest.raises(Stopped):
                stop.check()


def test_ignored_hang_up_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = StopSignal()
        with stop.on_signals():
            signal.raise_signal(signal.SIGHUP)
        assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def test_deadline_spares_cleanup():
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


def test_work_is_given_up_at_deadline():
    """If the work swallows a deadline's signal, it comes again."""
    stop, swallowed = StopSignal(shutdown_timeout_s=0.01), []

    def work():
        try:
            signal.raise_signal(signal.SIGTERM)
            while True:
                signal.pause()
        except Stopped as first:
            swallowed.append(first)
        while True:
            signal.pause()

    with pytest.raises(Stopped), stop.on_signals():
        work()
    assert len(swallowed) == 1
