"""Every command has its function in Python, with parameters called as its options are."""

import inspect

import polars as pl
import pytest
import typer
from told import told_run

import lpfloop
from lpfloop.loop.cli.app import app
from lpfloop.loop.library.read_only_run import ReadOnlyRun

EVERYWHERE = {
    "lake": "a run is opened with its lake",
    "json": "a function returns data",
    "format": "a frame writes itself: .write_csv, .write_parquet",
    "run": "the run whose method it is, or the function's first argument",
    "announce": "between a daemon and its starter",
    "detach": "the terminal's matter: `lpfloop run --detach`",
    "help": "the docstring says it",
}
"""Options that functions do not have, wherever they occur, and why."""
FUNCTIONS = {
    "run": (
        lpfloop.run,
        {
            "variants": "compared by `lpfloop run --variants`",
            "paper": "compared by `lpfloop run --paper`",
            "seeds": "belongs to --variants and --paper",
            "policy-tokens": "belongs to --variants",
            "judge-tokens": "belongs to --variants",
            "trials": "belongs to --variants",
            "dry-run": "a plan to read: `lpfloop run --dry-run`",
        },
        {"name", "display"},
    ),
    "resume": (lpfloop.resume, {}, {"display"}),
    "adopt": (lpfloop.adopt, {}, {}),
    "scale": (lpfloop.scale, {}, {}),
    "status": (
        ReadOnlyRun.status,
        {"split": "results(split=)", "by": "results(by=)", "wide": ""},
        {},
    ),
    "model": (
        ReadOnlyRun.model,
        {
            "all": "models()",
            "copy": "copy_model()",
            "force": "copy_model(force=)",
            "serve": "a server holds the terminal",
            "host": "belongs to --serve",
            "port": "belongs to --serve",
            "chat": "a conversation at the terminal",
            "temperature": "belongs to --chat",
        },
        {"which"},
    ),
    "show": (ReadOnlyRun.show, {}, {"identity"}),
    "lineage": (ReadOnlyRun.lineage, {}, {"identity"}),
    "diff": (
        ReadOnlyRun.diff,
        {
            "from": "before: from is a word of Python's",
            "to": "after, beside before",
            "to-run": "other, an opened run",
            "answers": "the result has them always",
            "limit": "the result has all changes",
            "benchmark": "held-out",
            "by": "the result's frame groups by any column",
        },
        {"before", "after", "other"},
    ),
    "candidates": (ReadOnlyRun.candidates, {}, {}),
    "critiques": (ReadOnlyRun.critiques, {}, {}),
    "grades": (ReadOnlyRun.grades, {}, {}),
    "pairs": (ReadOnlyRun.pairs, {}, {}),
    "failures": (ReadOnlyRun.failures, {}, {}),
    "alarms": (ReadOnlyRun.alarms, {}, {}),
    "steps": (ReadOnlyRun.steps, {}, {}),
    "search": (ReadOnlyRun.search, {}, {"text"}),
    "sql": (ReadOnlyRun.sql, {}, {"text"}),
    "import": (
        lpfloop.import_files,
        {"as": "format: as is a word of Python's"},
        {"files", "name", "format"},
    ),
    "export": (
        ReadOnlyRun.export,
        {"as": "format: as is a word of Python's"},
        {"table", "format"},
    ),
    "rederive": (lpfloop.rederive, {}, {}),
    "train": (lpfloop.train, {}, {"name", "display"}),
    "compare": (
        ReadOnlyRun.compare,
        {
            "report": "a page, by `lpfloop compare --report`",
            "force": "belongs to --report",
            "equal-tokens": "of a comparison, which is not a run",
            "plot": "belongs to --equal-tokens",
        },
        {"others"},
    ),
    "report": (ReadOnlyRun.report, {"open": "webbrowser.open(run.report().as_uri())"}, {}),
    "annotations": (ReadOnlyRun.annotations, {}, {}),
    "verdict": (
        ReadOnlyRun.verdict,
        dict.fromkeys(
            (
                *("a", "b", "preferences", "value", "key", "cluster", "error-rate", "look"),
                *("worthwhile", "require"),
            ),
            "of recorded files, which need no run: `lpfloop verdict --a FILE --b FILE`",
        ),
        {},
    ),
    "critic-check": (
        ReadOnlyRun.critic_check,
        {
            "without-reference": "asks a model: `lpfloop critic-check`",
            "with-reference": "asks a model: `lpfloop critic-check`",
        },
        {},
    ),
    "judge-check": (lpfloop.judge_check, {}, {"sources"}),
    "eval run": (lpfloop.evaluate, {}, {}),
    "eval facts": (ReadOnlyRun.facts, {}, {}),
    "config show": (
        ReadOnlyRun.config.fget,
        dict.fromkeys(
            (
                *("config", "variant", "prompts", "policy", "critic", "iterations", "seed", "set"),
                "defaults",
            ),
            "of what a command would mean, not of a run",
        ),
        {},
    ),
    "config variants": (lpfloop.variants, {}, {}),
    "lake duplicates": (ReadOnlyRun.duplicates, {}, {}),
    "lake derived": (ReadOnlyRun.derived_tables, {}, {}),
    "lake reparse": (lpfloop.reparse, {}, {}),
}
"""Of each command: its function, the options that it lacks and why, what it has besides."""
TERMINAL = "it works on the terminal, or on a daemon there"
FILES = "it reads files alone; its JSON is as good in Python"
UPKEEP = "upkeep of a lake, for the shell and its exit codes"
WITHOUT = {
    **dict.fromkeys(
        ("watch", "pause", "stop", "ctl", "launch", "worker", "preview", "doctor"), TERMINAL
    ),
    **dict.fromkeys(("init", "prepare", "study", "view", "annotate"), TERMINAL),
    **dict.fromkeys(("eval winrate", "eval reward", "config principles"), FILES),
    **dict.fromkeys(("config diff", "config schema", "critique", "tiny build"), TERMINAL),
    **dict.fromkeys(
        (
            *("lake verify", "lake repair", "lake digest", "lake gc", "lake compact"),
            *("lake migrate", "lake reindex", "lake failpoints"),
        ),
        UPKEEP,
    ),
}
"""The commands that have none, and why."""


def commands(group, before=()):
    """Give each command of the tree by its words."""
    for name, command in group.commands.items():
        words = (*before, name)
        if hasattr(command, "commands"):
            yield from commands(command, words)
        else:
            yield " ".join(words), command


TREE = dict(commands(typer.main.get_command(app)))


def options(command):
    """Return the long names of a command's options."""
    found = [p for p in command.params if p.param_type_name == "option"]
    return {max(p.opts, key=len).lstrip("-") for p in found}


def test_every_command_has_a_function_or_a_reason():
    assert set(TREE) == set(FUNCTIONS) | set(WITHOUT)
    assert not set(FUNCTIONS) & set(WITHOUT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_asked_as_its_command_is(name):
    function, lacking, besides = FUNCTIONS[name]
    parameters = set(inspect.signature(function).parameters) - {"self", "run", "lake"}
    asked = {option.replace("-", "_") for option in options(TREE[name])}
    left_out = {option.replace("-", "_") for option in lacking} | set(EVERYWHERE)
    assert parameters == (asked - left_out) | set(besides)
    assert {option.replace("-", "_") for option in lacking} <= asked


def test_the_guide_names_every_function_and_every_command_without_one(root):
    text = (root / "docs" / "python.md").read_text()
    missing = [name for name in TREE if f"`{name}`" not in text]
    assert missing == []


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interface")
    told_run(folder)
    told_run(folder, "twin")
    with lpfloop.open("told", lake=folder) as run:
        yield run


def test_lists_take_the_filters_of_their_commands(run):
    assert run.candidates(kind="greedy", limit=3).collect().height == 3
    rated = run.critiques(aspect="Completeness", rating=1).collect()
    assert 0 < rated.height < run.critiques().collect().height
    assert (
        run.candidates(sort="-completion_tokens")
        .collect()["completion_tokens"]
        .is_sorted(descending=True)
    )
    assert run.candidates(task="math").collect().columns == run.candidates().collect().columns
    with pytest.raises(ValueError, match="there is no task 'mats' here"):
        run.candidates(task="mats")
    assert run.failures(by="status").collect()["failures"].sum() == run.failures().collect().height
    assert run.pairs(min_margin=10**6).collect().is_empty()


def test_measures_are_frames_or_say_their_sentence(run):
    assert run.compare("twin", against="twin")["runs"].to_list()[-1] == ["twin"]
    with pytest.raises(ValueError, match="not in the comparison"):
        run.compare(against="nobody")
    assert isinstance(run.critic_check(draws=100), pl.DataFrame)
    with pytest.raises(ValueError, match="--by colour: there is no such group"):
        run.critic_check(by="colour")
    assert run.status()["run"] == "told"
    assert run.models()["name"].to_list()[0] == "M_0"
    assert run.derived_tables().is_empty()
    assert run.alarms(limit=1).collect().height <= 1
    assert "rlrf" in lpfloop.variants()["name"].to_list()


def test_a_table_is_exported_and_imported_and_derived_from(run, tmp_path):
    done = run.export("pairs", format="trl-dpo", output=tmp_path / "pairs")
    assert sum(done.files.values()) == 1
    (name,) = done.files
    file = done.folder / name
    with lpfloop.import_files(file, name="again", lake=tmp_path / "lake") as again:
        assert again.pairs().collect().height == 1
    with pytest.raises(ValueError, match="no such"):
        lpfloop.rederive(run, rule="no-such-rule")
