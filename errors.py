"""What `lpfloop.run` and its like raise, by the exit codes of the command line.

| exit code | exception |
| --- | --- |
| 1 | `FaultError`: a model, a training or a file failed |
| 2 | `ConfigError`, or another `ValueError`: bad input; nothing was written |
| 3 | `Stopped`: stopped cleanly, or a budget ended; `lpfloop.resume` goes on |
| 4 | `NothingToTrainOn`: an iteration has too little to train on |
| 5 | `Regressed`: the policy got worse, or an alarm stopped the run |
"""

from .configs.section import ConfigError
from .loop.daemon.child_run import FaultError
from .loop.run.outcomes import NothingToTrainOn, Regressed
from .loop.run.stop import Stopped

__all__ = ["ConfigError", "FaultError", "NothingToTrainOn", "Regressed", "Stopped"]
