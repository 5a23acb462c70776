"""When a stop takes effect: at the next unit, at the deadline, and only at safe places."""

import signal
import subprocess
import sys

from processes import ended, wait_until

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
stop = StopSignal(shutdown_timeout_s=1000)
with stop.on_signals():
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE)
    print(child.pid, int(child.stdout.readline()), flush=True)
    signal.raise_signal(signal.SIGINT)
    print("draining", flush=True)
    signal.raise_signal(signal.SIGTERM)
"""


def test_second_signal_ends_all_at_once():
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
