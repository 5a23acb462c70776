"""Requests of a run to its user: a sentence, with a command that exists."""

from dataclasses import replace

from rows import ALARM

from lpfloop.loop.lake.query.next_steps import LOW_BYTES, RunState, need_lines, run_needs

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
    "fit: raise it with `lpfloop resume RUN --set budget.judge_calls=…`"
)
UNREAD = (
    "UnreadRepliesError: critique:sample: 30 of 40 replies cannot be read (30 unreadable), more "
    "than smoke.max_parse_failures=0.5. The judge does not keep to the form. One of them: "
    "unreadable. To ask again, `lpfloop resume mine`; to go on as it is, with "
    "--set smoke.max_parse_failures=1"
)
STATES = {
    "paused": (replace(LEFT, work="paused"), "paused", "resume mine"),
    "silent": (replace(LEFT, work="silent"), "does not answer", "stop mine"),
    "gone": (LEFT, "its process is gone", "resume mine"),
    "budget": (
        replace(LEFT, ended=BUDGET),
        "give it N above 100",
        "resume mine --lake here --set budget.judge_calls=N",
    ),
    "unread": (replace(LEFT, ended=UNREAD), "30 of 40 replies", "critiques mine"),
    "nothing to train on": (
        replace(LEFT, ended="NothingToTrainOn: 3 pairs, and min_pairs is 64"),
        "3 pairs",
        "run --run NEW --reuse-from mine",
    ),
    "worse": (replace(LEFT, ended="Regressed: M_2 is 4 points below M_1"), "M_2 is", "verdict"),
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
}


def test_next_step_for_each_state():
    for state, told, command in STATES.values():
        first = run_needs(state)[0]
        assert told in first.what
        assert first.command.startswith(f"lpfloop {command}")
        assert "--lake here" in first.command
        assert "lpfloop" not in first.what, "the command stands beside the sentence"


def test_the_most_urgent_comes_first():
    needs = run_needs(replace(LEFT, free_bytes=0, alarms=(ALARM,)))
    assert [need.command.split()[1] for need in needs] == ["resume", "lake", "alarms"]
    lines = list(need_lines(needs, "ended"))
    assert len(lines) == len(needs)
    assert all(line.startswith("needs you: ") for line in lines)
