"""The user's next steps for a run, in words and with the command for each."""

import json
import re
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....stores.journal_reader import Reader
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Alarm, PolicyVerdict
from ...data.splits import HELD_OUT
from ...run.stop import START
from .alarm_list import UNVERIFIED, alarms
from .model_names import checkpoints
from .run_verdicts import RunVerdict, run_verdict
from .runs import NoSuchRunError, ending

RUNNING, PAUSED, STOPPING, SILENT = "running", "paused", "stopping", "silent"
AT_WORK = (RUNNING, PAUSED, STOPPING, SILENT)
"""The states of a run that a process of this machine works on."""

LOW_BYTES = 2 << 30
"""Below so much free space a run may soon have to wait for more."""
LONGEST = 600
"""The most characters shown of the reason why a run ended."""
_WHOLE = re.compile(r"done: (\d+) iterations")
_LIMIT = re.compile(r"budget\.(\w+) is ([^ ,]+)")
_COMMAND = re.compile(r"\. To ask again, `|\. `lpfloop |: raise it with `")
"""The start of the advice in a reason, which a need gives as its command instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A next step for the user: `what` is a sentence, `command` does or shows it."""

    what: str
    command: str | None

    def as_json(self) -> dict[str, Json]:
        """Return the fields, for a JSON document."""
        return {"what": self.what, "command": self.command}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of a run.

    `work` is its process's activity: running, paused, stopping or silent; for any other value, no
    process of this machine works on the run. `ended` is the journal's last reason for an end, None
    if a process started afterwards and recorded none. `whole`: all iterations are complete.
    `elsewhere` is the other machine on which it was started last. `where` is the option that names
    the lake.
    """

    run: str
    where: str
    work: str
    ended: str | None
    whole: bool
    elsewhere: str | None
    alarms: Sequence[Alarm]
    undecided: PolicyVerdict | None
    free_bytes: int

    def command(self, words: str, more: str = "") -> str:
        """Return an lpfloop command about the run."""
        return f"lpfloop {words} {self.run}{self.where}" + (f" {more}" if more else "")


def run_needs(state: RunState) -> list[Need]:
    """Return the user's next steps for a run, the most urgent first; empty if none is needed."""
    found = list[Need]()
    if state.work in (PAUSED, SILENT) or (state.work not in AT_WORK and not state.whole):
        found.append(_to_go_on(state))
    if not state.whole and state.free_bytes < LOW_BYTES:
        free = f"{state.free_bytes / (1 << 30):.1f} GiB"
        what = f"the disk has {free} left: a run waits when it is full; make room"
        found.append(Need(what=what, command=state.command("lake gc")))
    if state.alarms:
        number = len(state.alarms)
        raised = "an alarm was raised" if number == 1 else f"{number} alarms were raised"
        what = f"{raised} about M_{state.alarms[0].iteration}: look at them"
        found.append(Need(what=what, command=state.command("alarms")))
    if state.undecided is not None:
        more = state.command("eval run", "--prompts MORE.jsonl")
        found.append(Need(what=_why_undecided(state.undecided), command=more))
    return found


def need_lines(needs: Sequence[Need], work: str) -> Iterator[str]:
    """Yield a run's next steps in sentences, or that it is well; `work` is its activity."""
    for need in needs:
        command = "" if need.command is None else f": `{need.command}`"
        yield f"needs you: {need.what}{command}"
    if not needs:
        yield f"needs nothing: it is {work if work in AT_WORK else 'done'}"


def read_state(run: RunReader, work: str, where: str = "") -> RunState:
    """Return the state of a run; `work` is its process's activity."""
    journal = run.journal
    ended = ending(journal)
    whole = work not in AT_WORK and _is_whole(ended, journal)
    return RunState(
        run=run.folder.name,
        where=where,
        work=work,
        ended=ended,
        whole=whole,
        elsewhere=None if work in AT_WORK else _elsewhere(journal),
        alarms=_latest(alarms(run)),
        undecided=_undecided_verdict(run) if work not in AT_WORK else None,
        free_bytes=shutil.disk_usage(run.folder).free,
    )


def _is_whole(ended: str | None, journal: Reader) -> bool:
    """Return whether a run completed its configured iterations, by the last reason for its end."""
    if ended is None or not ended.startswith(("done", "imported")):
        return False
    matched = _WHOLE.fullmatch(ended)
    iterations = json.loads(journal.meta("config") or "{}").get("iterations", 0)
    return matched is None or int(matched[1]) >= iterations


def _elsewhere(journal: Reader) -> str | None:
    """Return the machine on which a run was started last, if it is not this one."""
    starts = journal.events(START)
    host = str(starts[-1].get("host")) if starts and isinstance(starts[-1], dict) else None
    return None if host in (None, socket.gethostname()) else host


def _latest(found: Sequence[Alarm]) -> list[Alarm]:
    """Return the last policy's alarms, skipping `UNVERIFIED` and policies without alarms."""
    raised = [alarm for alarm in found if alarm.kind != UNVERIFIED]
    return [alarm for alarm in raised if alarm.iteration == raised[0].iteration]


def _undecided_verdict(run: RunReader) -> PolicyVerdict | None:
    """Return the verdict on the last policy against M_0 if the held-out prompts did not decide."""
    try:
        found: RunVerdict = run_verdict(run, checkpoints(run))
    except NoSuchRunError:
        return None
    of = found.iterations[-1].of(HELD_OUT, "initial") if found.iterations else None
    return of if of is not None and of.answer == "undecided" else None


def _to_go_on(state: RunState) -> Need:
    """Return the step that makes a stopped run continue."""
    words, more = "resume", ""
    if state.work == PAUSED:
        what = "it is paused and waits to be resumed"
    elif state.work == SILENT:
        what, words = "its process does not answer: kill it, then resume the run", "stop"
        more = "--now"
    elif state.ended is not None:
        what, words, more = _after_end(*state.ended.partition(": ")[::2])
    elif state.elsewhere is not None:
        what = (
            f"it was begun on {state.elsewhere}, which cannot be seen from here: if no process "
            "works on it there, resume it"
        )
    else:
        paused = ", which was paused," if state.work.endswith("paused") else ""
        what = f"its process{paused} is gone without a reason; its rows are kept: resume it"
    return Need(what=what, command=state.command(words, more))


_AFTER: Mapping[str, tuple[str, str, str]] = {
    "BudgetReachedError": ("its budget is used up: {why}", "resume", ""),
    "UnreadRepliesError": (
        "replies could not be read: {why}. Fix the cause, then resume the run",
        "resume",
        "",
    ),
    "Stopped": ("it was stopped ({why}): resume it", "resume", ""),
    "NothingToTrainOn": (
        "there was nothing to train on: {why}. A new run with the same options reuses the rows",
        "run --run NEW --reuse-from",
        "--set training.min_pairs=N",
    ),
    "Regressed": ("it stopped as it got worse: {why}", "verdict", ""),
    "AlarmStopError": (
        "an alarm stopped it: {why}. Look at the alarms; then decide whether it shall continue",
        "resume",
        "--set alarms.on_alarm=continue",
    ),
}
"""The next step after each kind of end: a sentence, a command, and its options."""
_AN_ERROR = ("it ended with an error: {why}. Fix the cause, then resume it", "resume", "")


def _after_end(kind: str, detail: str) -> tuple[str, str, str]:
    """Return the next step after an end of this kind: a sentence, a command, and its options."""
    # The command repeats the advice in the reason.
    why = _COMMAND.split(detail, maxsplit=1)[0].strip().rstrip(".")
    why = why if len(why) <= LONGEST else f"{why[:LONGEST]} …"
    sentence, words, more = _AFTER.get(kind, _AN_ERROR)
    what = sentence.format(why=why or ("a stop was requested" if kind == "Stopped" else kind))
    limit = _LIMIT.search(why) if kind == "BudgetReachedError" else None
    if limit is not None:
        return f"{what}; give it N above {limit[2]}", words, f"--set budget.{limit[1]}=N"
    if kind == "UnreadRepliesError" and detail.startswith("critique:"):
        return what, "critiques", "--unscored"
    return what, words, more


def _why_undecided(row: PolicyVerdict) -> str:
    """Return how many held-out prompts would decide whether the run made its policy better."""
    enough = "they are too few to bound anything"
    if row.needed is not None:
        enough = f"about {row.needed:,} would"
    elif row.low is not None:
        enough = "they show no difference that more of them would settle"
    return (
        f"{row.n:,} held-out prompts do not decide whether M_{row.iteration} is better than M_0: "
        f"{enough}"
    )
