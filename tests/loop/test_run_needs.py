"""What a run needs from its person: told in words, with a command that exists."""

import json
import shlex
from dataclasses import replace

import pytest
import typer
from asked import RUNS, make_lake
from typer.testing import CliRunner

from examples import ALARM, VERDICT
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.lake.query.run_needs import (
    LOW_BYTES,
    RunState,
    needs_told,
    read_state,
    run_needs,
)
from lpfloop.loop.lake.query.runs import ending, open_run
from lpfloop.loop.run.run_events import END, STAGE, START
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunReader, run_folder

DONE = RunState(
    run="mine",
    where=" --lake here",
    work="ended",
    ended="done: 2 iterations",
    whole=True,
    elsewhere=None,
    alarms=(),
    undecided=None,
    free_bytes=LOW_BYTES,
)
LEFT = replace(DONE, ended=None, whole=False)
BUDGET = (
    "BudgetReachedError: budget.judge_calls is 100, 99 are spent, and the next request may not "
    "fit: raise it with `lpfloop resume RUN --max-judge-calls …`"
)
UNREAD = (
    "UnreadRepliesError: critique:sample: 30 of 40 replies cannot be read (30 unreadable), more "
    "than smoke.most_unread=0.5. The judge does not keep to the form. One of them: unreadable. To "
    "ask again, `lpfloop resume mine`; to go on as it is, with --set smoke.most_unread=1"
)
STATES = {
    "paused": (replace(LEFT, work="paused"), "paused", "resume mine"),
    "silent": (replace(LEFT, work="silent"), "does not answer", "stop mine"),
    "gone": (LEFT, "its process is gone", "resume mine"),
    "paused, then gone": (replace(LEFT, work="ended, paused"), "paused, is gone", "resume mine"),
    "elsewhere": (replace(LEFT, elsewhere="node7"), "begun on node7", "resume mine"),
    "stopped": (
        replace(LEFT, ended="Stopped: a stop was asked for"),
        "stopped (a stop was asked for)",
        "resume mine",
    ),
    "stopped by an older version": (
        replace(LEFT, ended="Stopped: "),
        "stopped (a stop was asked for)",
        "resume mine",
    ),
    "budget": (
        replace(LEFT, ended=BUDGET),
        "give it N above 100",
        "resume mine --lake here --max-judge-calls N",
    ),
    "unread": (replace(LEFT, ended=UNREAD), "30 of 40 replies", "critiques mine"),
    "unread by another judge": (
        replace(LEFT, ended=UNREAD.replace("critique:sample", "annotate")),
        "30 of 40 replies",
        "resume mine",
    ),
    "nothing to train on": (
        replace(LEFT, ended="NothingToTrainOn: 3 pairs, and min_pairs is 64"),
        "3 pairs",
        "failures mine",
    ),
    "worse": (replace(LEFT, ended="Regressed: M_2 is 4 points below M_1"), "M_2 is", "verdict"),
    "alarm that stops": (
        replace(LEFT, ended="AlarmStopError: iteration 1: lengths fell. `lpfloop alarms mine`"),
        "lengths fell. Look",
        "resume mine --lake here --on-alarm continue",
    ),
    "endpoint": (
        replace(LEFT, ended="EngineError: no endpoint answers within 600 s"),
        "no endpoint answers within 600 s",
        "resume mine",
    ),
    "disk": (
        replace(LEFT, work="running", free_bytes=LOW_BYTES - 1),
        "2.0 GiB left",
        "lake gc mine",
    ),
    "alarm": (
        replace(DONE, alarms=(ALARM, ALARM)),
        "2 alarms were raised about M_2",
        "alarms mine",
    ),
    "undecided": (
        replace(DONE, undecided=replace(VERDICT, answer="undecided", n=40, needed=1200)),
        "40 held-out prompts do not decide whether M_2 is better than M_0: about 1,200 would",
        "eval run mine",
    ),
    "too few": (
        replace(DONE, undecided=replace(VERDICT, low=None, high=None, needed=None, n=1)),
        "too few to bound anything",
        "eval run mine",
    ),
}


@pytest.mark.parametrize(("state", "told", "command"), STATES.values(), ids=STATES)
def test_each_state_tells_what_it_needs_and_how(state, told, command):
    first = run_needs(state)[0]
    assert told in first.what
    assert first.command.startswith(f"lpfloop {command}")
    assert "--lake here" in first.command
    assert "lpfloop" not in first.what, "the command stands beside the sentence"


@pytest.mark.parametrize("state", [state for state, _, _ in STATES.values()], ids=STATES)
def test_every_command_exists_with_its_options(state):
    for need in run_needs(state):
        _, *words = shlex.split(need.command)
        found = typer.main.get_command(app)
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize(
    "state", [DONE, replace(LEFT, work="running"), replace(LEFT, work="stopping")]
)
def test_a_run_that_is_well_needs_nothing_and_says_so(state):
    assert run_needs(state) == []
    (said,) = needs_told([], state.work)
    assert said.startswith("needs nothing: it is ")


def test_the_most_urgent_comes_first_and_each_is_a_line():
    needs = run_needs(replace(LEFT, free_bytes=0, alarms=(ALARM,)))
    assert [need.command.split()[1] for need in needs] == ["resume", "lake", "alarms"]
    lines = list(needs_told(needs, "ended"))
    assert len(lines) == len(needs)
    assert all(line.startswith("needs you: ") for line in lines)


@pytest.fixture
def journal(tmp_path):
    folder = run_folder(tmp_path, "mine")
    config = json.dumps({"iterations": 2})
    kept = Journal.create(folder, {"config": config})
    yield kept
    kept.close()


def begin(journal, stage):
    journal.record(START, {"pid": 1, "host": "node7"})
    journal.record(STAGE, {"iteration": 1, "stage": stage, "done": 0, "at": 0.0})


def standing(journal):
    reader = RunReader(journal.folder)
    state = read_state(reader, "ended")
    reader.close()
    return state


def test_a_run_taken_up_again_and_killed_does_not_tell_how_it_ended_before(journal):
    begin(journal, "sample")
    journal.record(END, "Stopped: a stop was asked for")
    assert ending(journal) == "Stopped: a stop was asked for"
    begin(journal, "sample")
    assert ending(journal) is None
    assert standing(journal).elsewhere == "node7"


def test_what_is_measured_beside_a_run_does_not_take_it_up_again(journal):
    journal.record(END, "done: 2 iterations")
    begin(journal, "evaluate:prompts-12345678")
    assert standing(journal).whole


def test_a_run_that_was_given_more_iterations_is_not_whole(journal):
    journal.record(END, "done: 1 iterations")
    assert not standing(journal).whole


@pytest.mark.parametrize("command", ["pause", "stop"])
def test_a_finished_run_cannot_be_paused_and_says_why(journal, command):
    lake = journal.folder.parent.parent
    started = CliRunner().invoke(app, [command, "mine", "--lake", str(lake)])
    assert started.exit_code == Exit.BAD_INPUT
    assert "`lpfloop resume mine` continues it" in started.stderr or command == "stop"
    journal.record(END, "done: 2 iterations")
    done = CliRunner().invoke(app, [command, "mine", "--lake", str(lake)])
    assert done.exit_code == Exit.BAD_INPUT
    assert "is finished (done: 2 iterations): there is nothing to pause or to stop" in done.stderr
    assert "resume" not in done.stderr


def test_a_run_with_an_unknown_end_is_told_of_it(tmp_path):
    make_lake(tmp_path)
    run = open_run(tmp_path, RUNS[0])
    (need,) = run_needs(read_state(run, "ended"))
    run.close()
    assert "ended with an error" in need.what
