"""The dry run of a fork lists the reused units, and fails where the real fork would fail."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner
from world import RUN, loop, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.loop.daemon.loop import required_prompts
from lpfloop.loop.daemon.plan import Plan
from lpfloop.loop.daemon.plan_lines import plan_lines
from lpfloop.loop.daemon.planning import plan_run
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

WARMER = "critic.sampling.temperature=0.9"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a finished run of two iterations."""
    folder = tmp_path_factory.mktemp("forked")
    write_prompts(folder)
    with stand_ins(folder):
        loop(folder, config=config(folder))
    return folder


def config(lake: Path, *more: str) -> RunConfig:
    return small_config(lake / "prompts.jsonl", "smoke.prompts=0", *more)


def plan(lake: Path, *more: str) -> Plan:
    wanted = config(lake, *more)
    return plan_run(wanted, required_prompts(wanted, lake), lake, fork=RUN)


def reused(found: Plan) -> dict[tuple[int, str], int]:
    return {(stage.iteration, stage.stage): stage.reused for stage in found.stages if stage.reused}


def reused_in(lake: Path, name: str) -> Iterator[tuple[tuple[int, str], int]]:
    with closing(Reader(run_folder(lake, name))) as reader:
        for stage in reader.stages():
            if stage.totals.get("reused"):
                yield (stage.iteration, stage.stage), round(stage.totals["reused"])


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("same", ()),
        ("longer", ("iterations=3",)),
        ("warmer", (WARMER,)),
        ("trained", ("training.dpo.beta=0.3",)),
        ("wider", ("recipe.n=3",)),
        ("seeded", ("seed=1",)),
    ],
)
def test_fork_reuses_what_its_plan_says(lake: Path, name: str, changes: tuple[str, ...]) -> None:
    told = reused(plan(lake, *changes))
    with stand_ins(lake):
        loop(lake, config=config(lake, *changes), name=name, fork=RUN)
    assert told == dict(reused_in(lake, name))


def test_calls_are_those_left(lake: Path) -> None:
    whole, warmer = plan(lake), plan(lake, WARMER)
    assert whole.total("calls") == 0
    assert {s.stage.partition(":")[0] for s in warmer.stages if s.calls and s.iteration < 1} == {
        "critique"
    }
    assert any("re-uses" in line and RUN in line for line in plan_lines(warmer))


def test_other_prompts_reuse_nothing_known(lake: Path) -> None:
    found = plan(lake, "prompts.per_iteration=3")
    assert not reused(found)
    assert found.total("calls") > 0
    assert any("no unit" in line for line in plan_lines(found))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dry-run", "--reuse-from", "no-such-run"), "no such run"),
        (("--dry-run", "--reuse-from", RUN, "--run", RUN), "exists already"),
        (("--dry-run", "--detach"), "--detach"),
        (("--seeds", "3"), "--seeds"),
        (("--seeds", "3", "--dry-run"), "--seeds"),
    ],
)
def test_dropped_options_are_refused(lake: Path, words: tuple[str, ...], said: str) -> None:
    before = sorted(lake.rglob("*"))
    prompts = f"--prompts={lake / 'prompts.jsonl'}"
    told = CliRunner().invoke(app, ["run", prompts, "--lake", str(lake), *words])
    assert told.exit_code == Exit.BAD_INPUT, told.output
    assert said in told.stderr
    assert sorted(lake.rglob("*")) == before
