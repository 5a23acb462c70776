"""The smoke test before a run's first stage."""

from dataclasses import replace

from rows import PROMPT

from lpfloop.loop.stages.smoke_test import diverse


def test_tasks_take_turns():
    tasks = {"a": "x", "b": "x", "c": "y", "d": "x"}
    prompts = [replace(PROMPT, prompt_id=name, task=task) for name, task in tasks.items()]
    assert [p.prompt_id for p in diverse(prompts, 3)] == ["a", "c", "b"]
    assert len(diverse(prompts, 9)) == 4
