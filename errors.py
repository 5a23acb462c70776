"""What `lpfloop.run` and its like raise, by the exit codes of the command line.

| exit code | exception |
| --- | --- |
| 1 | `FaultError`: a model, a training or a file failed |
| 2 | `ConfigError`, or another `ValueError`: bad input; nothing was written |
| 3 | `Stopped`: stopped cleanly, or a budget ended; `lpfloop.resume` goes on |
| 4 | `NothingToTrainOn`: an iteration has too little to train on |
| 5 | `Regressed`: the policy got worse, or an alarm stopped the run |

Each error has a stable `code`, which the command line prints as `error LPF-102: sentence`:

| codes | about |
| --- | --- |
| `LPF-001` | the process that worked on a run failed without a reason |
| `LPF-101` | settings and options |
| `LPF-102` | an input file or one of its rows |
| `LPF-103` to `LPF-105`, `LPF-108` | output: a target, a format, a place that cannot be written |
| `LPF-106`, `LPF-107` | a model that must be named; the name of a run |
| `LPF-201` to `LPF-208` | what a lake does not have: a run, a row, a figure, a derived table |
| `LPF-209` to `LPF-214` | an index, a ledger, a journal or rows that are unusable or damaged |
| `LPF-215` to `LPF-219` | a run that another process holds; a bucket |
| `LPF-220` to `LPF-222` | commands to a run at work |
| `LPF-301` to `LPF-307` | models, engines and endpoints |
| `LPF-400` to `LPF-404` | training: stopped, failed, nothing to train on, worse, an alarm |
| `LPF-501` | judges whose replies cannot be read |
"""

from .configs.mistakes import ConfigError
from .loop.daemon.child_run import FaultError
from .loop.run.stop import NothingToTrainOn, Regressed, Stopped

__all__ = ["ConfigError", "FaultError", "NothingToTrainOn", "Regressed", "Stopped"]
