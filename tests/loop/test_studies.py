"""Studies: a claim is decided by its interval over seeds, and by nothing else."""

import json
import re
from dataclasses import replace
from math import inf

import pytest
from decided import FIRST, STUDY, find_gain, write_job
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.cli import study_commands
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.studies import STUDIES
from lpfloop.loop.studies.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNKNOWN,
    PaperClaim,
    PaperFigure,
    SeedEstimate,
    verdict_of,
)
from lpfloop.loop.studies.run_study import StudyRequest, run_study
from lpfloop.loop.studies.study import Study, StudyArm
from lpfloop.loop.studies.study_list import index_text, listed_in_lake, listed_in_pages
from lpfloop.loop.studies.study_pages import PageFacts, page_text
from lpfloop.stores.lake import RUN_NAME

PLACE = PaperFigure(place="Table 2", said="40 to 50")
NUMBERS = st.floats(-100, 100, allow_nan=False)
BETTER = ((0.0, 1.0, 1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0))


def claimed(values, above=-inf, below=inf):
    return PaperClaim(
        says="so", paper=PLACE, estimate=SeedEstimate.of(values), above=above, below=below
    )


# claims


@given(st.lists(NUMBERS, min_size=1, max_size=8), NUMBERS)
def test_a_claim_is_decided_by_the_interval_alone(values, edge):
    more, less = claimed(values, above=edge), claimed(values, below=edge)
    estimate = more.estimate
    if len(values) == 1:
        assert more.verdict == less.verdict == UNDECIDED
    else:
        assert estimate.low <= estimate.value <= estimate.high
        assert (more.verdict == HOLDS) == (estimate.low > edge)
        assert (less.verdict == HOLDS) == (estimate.high < edge)
        assert more.verdict != HOLDS or less.verdict == FAILS
        assert less.verdict != HOLDS or more.verdict == FAILS


@given(st.lists(NUMBERS, min_size=2, max_size=8), NUMBERS, st.floats(0.1, 50))
def test_a_claim_of_a_range_holds_within_it_and_fails_beyond(values, middle, reach):
    claim = claimed(values, above=middle - reach, below=middle + reach)
    low, high = claim.estimate.low, claim.estimate.high
    inside = middle - reach < low and high < middle + reach
    outside = high <= middle - reach or low >= middle + reach
    assert claim.verdict == (HOLDS if inside else FAILS if outside else UNDECIDED)


def test_the_interval_is_students():
    estimate = SeedEstimate.of([1.0, 2.0, 3.0], "points", signed=True)
    assert estimate.high - 2 == pytest.approx(4.302653 / 3**0.5, rel=1e-5)
    assert estimate.told() == "+2.0 points [-0.5, +4.5]"
    assert SeedEstimate.of([1.0], "%").told() == "1.0 % (no interval: one seed)"
    assert SeedEstimate.difference([3, 5], [1, 2]).by_seed == (2, 3)


def test_a_figure_that_some_seed_does_not_have_decides_nothing():
    estimate = SeedEstimate.of([1.0, None, 3.0], "points")
    assert (estimate.told(), estimate.by_seed) == (UNKNOWN, ())
    assert SeedEstimate.difference([1.0, 2.0], [None, 1.0]).told() == UNKNOWN
    unread = PaperClaim(says="so", paper=PLACE, estimate=estimate, above=0)
    assert unread.verdict == UNDECIDED
    assert unread.document()["value"] is None
    assert verdict_of([unread, claimed([1.0, 1.0, 1.0], above=0)]) == UNDECIDED


def test_what_does_not_differ_at_all_is_no_gain():
    assert claimed([0.0, 0.0, 0.0], above=0).verdict == FAILS


@pytest.mark.parametrize("region", [{}, {"above": 1, "below": 1}, {"above": 2, "below": 1}])
def test_a_claim_must_be_able_to_fail_and_to_hold(region):
    with pytest.raises(ValueError, match="must be able to fail"):
        claimed([1.0], **region)


def test_a_study_holds_if_all_its_claims_do():
    holds, fails = claimed([4, 5, 6], above=0), claimed([4, 5, 6], below=0)
    unknown = claimed([5], above=0)
    assert verdict_of([holds, holds]) == HOLDS
    assert verdict_of([holds, unknown]) == UNDECIDED
    assert verdict_of([unknown, fails, holds]) == FAILS
    assert verdict_of([]) == UNDECIDED


# the studies that are shipped


def test_an_arm_of_one_name_is_the_same_in_all_studies():
    arms = dict[str, StudyArm]()
    for study in STUDIES.values():
        for arm in study.arms:
            assert arms.setdefault(arm.name, arm) == arm
            assert RUN_NAME.fullmatch(f"study-{arm.name}-12345")
    assert {arm.fork for arm in arms.values()} <= {"", *arms}


@pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
def test_a_study_says_what_it_tests_and_each_arm_has_a_configuration(study):
    assert study.hypothesis.endswith(".")
    assert study.paper
    for arm in study.arms:
        assert arm.recipe in RECIPES
        config = load_config("tiny", arm.recipe, [*arm.tiny, *arm.settings], {})
        assert config.recipe.name == arm.recipe
        if not study.tiny_only:
            load_config("own", arm.recipe, list(arm.settings), {})


def test_a_studys_arms_come_in_order_and_once():
    late = StudyArm(name="late", recipe="rlrf", policy_of="first")
    with pytest.raises(ValueError, match="needs a later one"):
        Study(name="s", hypothesis="", paper="", arms=(late, FIRST), find=find_gain)
    with pytest.raises(ValueError, match="twice"):
        Study(name="s", hypothesis="", paper="", arms=(FIRST, FIRST), find=find_gain)


# running them


def request(lake, seeds=(1, 2), **fields):
    return StudyRequest(study=STUDY, seeds=seeds, lake=lake, **fields)


def test_arms_run_seed_by_seed_and_what_is_done_is_not_repeated(tmp_path):
    turned = list[tuple[str, str | None]]()

    def turn(job):
        turned.append((job.name, job.fork))
        if len(turned) == 3:
            raise KeyboardInterrupt
        write_job(job)

    with pytest.raises(KeyboardInterrupt):
        run_study(request(tmp_path), turn, lambda _: None)
    assert run_study(request(tmp_path), turn, lambda _: None) == []
    assert run_study(request(tmp_path), turn, lambda _: None) == []
    assert turned == [
        ("study-first-1", None),
        ("study-other-1", "study-first-1"),
        ("study-first-2", None),
        ("study-first-2", None),
        ("study-other-2", "study-first-2"),
    ]


def test_a_run_that_was_stopped_or_is_of_other_settings_is_a_matter_of_the_loop(tmp_path):
    turned = list[str]()
    run_study(request(tmp_path, (1,)), lambda job: write_job(job, end="Stopped: asked"), print)
    run_study(request(tmp_path, (1,)), lambda job: turned.append(job.name), print)
    assert turned == ["study-first-1", "study-other-1"]
    turned.clear()
    run_study(request(tmp_path, (2,)), write_job, print)
    more = request(tmp_path, (2,), overrides=("prompts.per_iteration=7",))
    run_study(more, lambda job: turned.append(job.name), print)
    assert turned == ["study-first-2", "study-other-2"]


def test_an_arm_with_nothing_to_train_on_is_told_and_counts_as_m_0(tmp_path):
    def turn(job):
        write_job(job, end="NothingToTrainOn: 0 pairs")
        raise NothingToTrainOn("0 pairs")

    wanted = request(tmp_path, (1,))
    assert run_study(wanted, turn, print) == [
        "study-first-1 had nothing to train on: 0 pairs",
        "study-other-1 had nothing to train on: 0 pairs",
    ]
    assert STUDY.find(wanted.evidence).claims[0].estimate.value == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"overrides": ("iterations=3",)}, "arm first: --set iterations: the study decides it"),
        ({"overrides": ("seed=3",)}, "--set seed: the study decides it"),
        ({"overrides": ("prompts.nothing=3",)}, "nothing"),
    ],
)
def test_what_a_study_cannot_be_run_with_is_refused_before_anything_is_made(tmp_path, fields, said):
    with pytest.raises(ConfigError, match=said):
        run_study(request(tmp_path, **fields), pytest.fail, print)
    assert list(tmp_path.iterdir()) == []


def test_own_models_have_runs_of_their_own_and_a_toys_study_refuses_them(tmp_path):
    assert request(tmp_path, config="own").evidence.names("first") == [
        "own-study-first-1",
        "own-study-first-2",
    ]
    toy = replace(STUDY, tiny_only="its people are scripts")
    with pytest.raises(ConfigError, match=r"tiny world alone: its people are scripts"):
        run_study(StudyRequest(study=toy, seeds=(1,), lake=tmp_path, config="own"), print, print)
    with pytest.raises(ConfigError, match="study made-up, arm first: no prompts are named"):
        run_study(request(tmp_path, config="own"), pytest.fail, print)


# telling of them


def made(lake, seeds):
    for seed in seeds:
        values = BETTER[seed % 2]
        run_study(request(lake, (seed,)), lambda job: write_job(job, values), print)  # noqa: B023


@pytest.fixture
def shipped(monkeypatch):
    monkeypatch.setattr("lpfloop.loop.studies.STUDIES", {STUDY.name: STUDY})


def call(*words):
    return CliRunner().invoke(app, ["study", *map(str, words)])


def test_the_list_tells_the_verdicts_of_the_runs_that_are_there(tmp_path, shipped):
    assert [one.verdict for one in listed_in_lake({"made-up": STUDY}, tmp_path)] == ["-"]
    made(tmp_path, (4, 5, 6))
    (one,) = listed_in_lake({"made-up": STUDY}, tmp_path)
    assert (one.verdict, one.seeds) == (HOLDS, (4, 5, 6))
    told = call("list", "--lake", tmp_path, "--json")
    assert told.exit_code == Exit.DONE, told.output
    (row,) = json.loads(told.stdout)
    assert (row["name"], row["verdict"], row["arms"]) == ("made-up", HOLDS, ["first", "other"])
    assert "made-up" in call("list", "--lake", tmp_path).stdout


def test_a_study_is_told_as_a_table_as_json_and_as_a_page(tmp_path, shipped, monkeypatch):
    monkeypatch.setattr(study_commands, "turn", pytest.fail)
    lake = tmp_path / "lake"
    made(lake, (4, 5, 6))
    options = ("made-up", "--seed", 4, "--lake", lake)
    told = call(*options)
    assert told.exit_code == Exit.DONE, told.output
    assert "made-up: holds" in told.stdout
    found = json.loads(call(*options, "--json").stdout)
    assert (found["seeds"], found["verdict"]) == ([4, 5, 6], HOLDS)
    assert found["claims"][0]["holds_above"] == 0
    pages = tmp_path / "docs" / "studies"
    for _ in range(2):
        assert call(*options, "-o", pages, "--force").exit_code == Exit.DONE
        text = (pages / "made-up.md").read_text()
        assert text.splitlines()[2] == "**Built in.** All of it | by hand."
        assert re.search(r"\| \+\d+\.\d points \[\+\d+\.\d, \+\d+\.\d\] \| above 0 points \|", text)
        assert f"lpfloop study made-up --seeds 3 --seed 4 --lake {lake}" in text
    before = text
    assert call(*options, "-o", pages).exit_code == Exit.BAD_INPUT
    assert (pages / "made-up.md").read_text() == before
    assert call("list", "-o", tmp_path / "docs").exit_code == Exit.DONE
    index = (tmp_path / "docs" / "studies.md").read_text()
    assert "| [made-up](studies/made-up.md) | It gains. | holds (3 seeds) |" in index


def test_one_seed_never_decides(tmp_path, shipped, monkeypatch):
    monkeypatch.setattr(study_commands, "turn", lambda job, stop: write_job(job, BETTER[1]))
    told = call("made-up", "--seeds", 1, "--lake", tmp_path)
    assert told.exit_code == Exit.DONE, told.output
    assert "made-up: undecided" in told.stdout
    assert "one seed" in " ".join(told.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("made-upp",), "there is no study 'made-upp'; did you mean 'made-up'?"),
        (("made-up", "--set", "iterations=2"), "the study decides it"),
        (("made-up", "--set", "prompts.quality.engine.api_key=x"), "command line"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, shipped, words, said):
    told = call(*words, "--lake", tmp_path)
    assert told.exit_code == Exit.BAD_INPUT
    assert said in told.stderr


def test_the_same_evidence_gives_the_same_page(tmp_path):
    made(tmp_path, (4, 5))
    facts = PageFacts(seeds=(4, 5), world="the tiny world", command="lpfloop study made-up")
    texts = {
        page_text(STUDY, STUDY.find(request(tmp_path, (4, 5)).evidence), facts) for _ in range(2)
    }
    (text,) = texts
    assert not re.search(r"\d+\.\d{3}", text)


def test_the_index_is_what_the_command_writes(root):
    """`lpfloop study list --output docs` has been run since studies or pages changed."""
    pages = listed_in_pages(STUDIES, root / "docs" / "studies")
    assert (root / "docs" / "studies.md").read_text() == index_text(pages)
    shown = {path.stem for path in (root / "docs" / "studies").glob("*.md")}
    assert shown <= set(STUDIES)


@pytest.mark.slow
@pytest.mark.model
def test_a_study_of_the_tiny_world_runs_and_goes_on_where_it_was(tmp_path):
    sizes = ("prompts.per_iteration=48", "prompts.evaluated=24", "training.min_pairs=4")
    words = ["rlrf-resampling", "--seeds", "1", "--seed", "1", "--lake", tmp_path / "lake"]
    words += [f"--set={size}" for size in sizes]
    pages = tmp_path / "pages"
    first = call(*words, "-o", pages)
    assert first.exit_code == Exit.DONE, first.output
    text, plot = (pages / "rlrf-resampling.md").read_text(), pages / "rlrf-resampling.svg"
    drawn = plot.read_bytes()
    assert "**Verdict: undecided.** Seeds: 1;" in text
    again = call(*words, "-o", pages, "--force")
    assert again.exit_code == Exit.DONE, again.output
    assert "iteration" not in again.stderr
    assert (pages / "rlrf-resampling.md").read_text() == text
    assert plot.read_bytes() == drawn
