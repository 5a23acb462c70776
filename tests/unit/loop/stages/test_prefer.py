"""Training data of supervised methods: from comparisons, from people, with control texts."""

import json
from dataclasses import replace
from pathlib import Path

from rows import CANDIDATE, PREFERENCE, PROMPT

from lpfloop.configs.schema import PromptsConfig
from lpfloop.loop.data.judged_candidates import READ
from lpfloop.loop.data.prompts import read_prompts
from lpfloop.loop.stages.prefer import conditioned_demonstrations, preferred_demonstrations
from lpfloop.loop.stages.supervised_set import answers_of_people, make_demonstrations
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.records import (
    Candidate,
    Demonstration,
    Message,
    PairingOutcome,
    Preference,
    Preferred,
)

PROMPTS = [
    replace(PROMPT, prompt_id=name, messages=(Message(role="user", content=f"{name}?"),))
    for name in ("p", "q", "r", "s")
]
CANDIDATES = [
    replace(CANDIDATE, candidate_id=f"{p.prompt_id}{n}", prompt_id=p.prompt_id, text=f"{n}!")
    for p in PROMPTS
    for n in (0, 1)
]
VERDICTS: dict[str, Preferred | None] = {"p": "first", "q": "second", "r": "tie", "s": None}
PREFERENCES = [
    replace(
        PREFERENCE, preference_id=f"pref-{p}", prompt_id=p, first_id=f"{p}0", second_id=f"{p}1",
        preferred=verdict,
    )
    for p, verdict in VERDICTS.items()
]  # fmt: skip
OUTCOMES = {"p": "demonstrated", "q": "demonstrated", "r": "tied", "s": "unread"}


def frames():
    return (
        rows_frame(Candidate, CANDIDATES).select(READ["candidates"]),
        rows_frame(Preference, PREFERENCES).select(READ["preferences"]),
    )


def test_preferred_demonstrations():
    made = preferred_demonstrations(*frames(), PROMPTS, 3)
    rows = frame_rows(Demonstration, made.rows)
    assert [(d.prompt_id, d.candidate_id, d.completion[0].content) for d in rows] == [
        ("p", "p0", "0!"), ("q", "q1", "1!"),
    ]  # fmt: skip
    assert all(d.iteration == 3 and d.rule == "preferred" and d.reward is None for d in rows)
    told = {y.prompt_id: y.outcome for y in frame_rows(PairingOutcome, made.outcomes)}
    assert told == OUTCOMES


def test_conditioned_demonstrations():
    made = conditioned_demonstrations(*frames(), PROMPTS, 1, positive="Good:", negative="Bad:")
    rows = frame_rows(Demonstration, made.rows)
    assert [(d.rule, d.candidate_id, d.prompt[0].content) for d in rows] == [
        ("conditioned_positive", "p0", "Good:\np?"), ("conditioned_positive", "q1", "Good:\nq?"),
        ("conditioned_negative", "p1", "Bad:\np?"), ("conditioned_negative", "q0", "Bad:\nq?"),
    ]  # fmt: skip
    assert len({d.demonstration_id for d in rows}) == 4
    told = {y.prompt_id: (y.outcome, y.made) for y in frame_rows(PairingOutcome, made.outcomes)}
    assert told == {name: (outcome, 2 * (name in "pq")) for name, outcome in OUTCOMES.items()}


def test_answers_of_people(tmp_path: Path):
    rows = [
        {"instruction": "Add.", "input": "2 + 3", "output": "5"},
        {"instruction": "Add.", "input": "2 + 4", "output": ""},
        {"instruction": "Sing."},
    ]
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps(rows))
    prompts = read_prompts(path)
    answers = answers_of_people(PromptsConfig(source=str(path)), prompts)
    assert [answers.get(prompt.prompt_id) for prompt in prompts] == ["5", None, None]
    written = [replace(CANDIDATE, prompt_id=prompts[0].prompt_id, text="5")]
    made = make_demonstrations(written, prompts, 1)
    (row,) = frame_rows(Demonstration, made.rows)
    assert row.prompt[0].content == "Add.\n\n2 + 3"
    assert row.completion[0].content == "5"
    told = [(y.outcome, y.made) for y in frame_rows(PairingOutcome, made.outcomes)]
    assert told == [("demonstrated", 1), ("no_demonstration", 0), ("no_demonstration", 0)]
