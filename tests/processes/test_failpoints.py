"""A failpoint does nothing until it is armed, then exactly the requested action."""

import os
import signal
import subprocess
import sys

from lpfloop.stores.failpoints import VARIABLE

PLACE = "part.rename.before"
CODE = "from lpfloop.stores.failpoints import reach\nfor n in range(3): reach({!r}); print(n)"


def test_child_killed_at_place(subtests):
    for nth, printed in [("", ""), ("#1", ""), ("#3", "0\n1\n")]:
        with subtests.test(case=nth):
            child = subprocess.run(
                [sys.executable, "-uc", CODE.format(PLACE)],
                env={**os.environ, VARIABLE: f"stage.begin:kill,{PLACE}{nth}:kill"},
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            assert (child.returncode, child.stdout) == (-signal.SIGKILL, printed)
