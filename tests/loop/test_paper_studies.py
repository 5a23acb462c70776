"""The studies of AlpacaFarm, UltraFeedback and ChatGLM-RLHF: what they measure, and their pages."""

import math
import random

import polars as pl
import pytest
from commands import call
from studied import make_empty_run, make_run

from lpfloop.configs.recipes import Annotated
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.studies import STUDIES
from lpfloop.loop.studies.chatglm_l2 import wandering
from lpfloop.loop.studies.chatglm_next_token import TAUGHT, careful_answers, fallen, problems
from lpfloop.loop.studies.chatglm_reference import kl_at, optimised, rise
from lpfloop.loop.studies.chatglm_variance import distinct_by_fate
from lpfloop.loop.studies.claims import UNKNOWN
from lpfloop.loop.studies.evidence import Evidence
from lpfloop.loop.studies.farm_figures import (
    by_n,
    course,
    late_rise,
    people_prefer,
    rank_correlation,
)
from lpfloop.loop.studies.held_out_pairs import (
    agreement,
    bias_by_difference,
    equally_long,
    length_bias,
    paired,
)
from lpfloop.loop.studies.run_study import StudyRequest, config_of, require_runnable
from lpfloop.loop.studies.seed_lines import seed_line
from lpfloop.loop.studies.study_files import places_of, write_files
from lpfloop.loop.studies.study_pages import PageFacts, page_text
from lpfloop.loop.tiny import human
from lpfloop.loop.tiny.person import DOUBT, liked_more
from lpfloop.loop.tiny.probes import DRAWS, FORMATS
from lpfloop.loop.tiny.talkative import talkative_rows
from lpfloop.loop.tiny.world import prompts

SEEDS = (1, 2)
OURS = [name for name in STUDIES if name.startswith(("alpacafarm", "ultrafeedback", "chatglm"))]
ARMS = {arm.name: (study, arm) for study in STUDIES.values() for arm in study.arms}


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    """Return a lake that has every arm's runs under two seeds."""
    lake = tmp_path_factory.mktemp("studied")
    for name in ARMS:
        if any(arm.name == name for study in OURS for arm in STUDIES[study].arms):
            for seed in SEEDS:
                make_run(lake, f"study-{name}-{seed}")
    return lake


def test_there_are_ten_studies_of_the_other_papers():
    assert len(OURS) == 10


@pytest.mark.parametrize("name", OURS)
def test_a_study_reads_its_arms_and_makes_its_page(name, studied):
    study = STUDIES[name]
    finding = study.find(Evidence(lake=studied, seeds=SEEDS))
    assert all(claim.paper.said for claim in finding.claims)
    known = [claim for claim in finding.claims if claim.estimate.told() != UNKNOWN]
    assert known
    assert all(math.isfinite(claim.estimate.value) for claim in known)
    assert {claim.verdict for claim in finding.claims} <= {"holds", "does not hold", "undecided"}
    facts = PageFacts(seeds=SEEDS, world="the tiny world", command=f"lpfloop study {name}")
    page = page_text(study, finding, facts)
    assert study.hypothesis in page
    assert all(file.name in page for arm in study.arms for file in arm.files)
    assert page.startswith(f"# Study: {name}\n\n**Built in.** ")
    assert page == page_text(study, study.find(Evidence(lake=studied, seeds=SEEDS)), facts)


@pytest.mark.parametrize("name", OURS)
def test_with_one_seed_nothing_holds(name, studied):
    finding = STUDIES[name].find(Evidence(lake=studied, seeds=SEEDS[:1]))
    assert {claim.verdict for claim in finding.claims} == {"undecided"}
    assert finding.verdict == "undecided"


@pytest.mark.parametrize("name", [name for name in OURS if STUDIES[name].tiny_only])
def test_a_study_of_the_hidden_human_is_refused_in_any_other_world(name, tmp_path):
    wanted = StudyRequest(study=STUDIES[name], seeds=(1,), lake=tmp_path, config="own")
    with pytest.raises(ConfigError, match="runs in the tiny world alone"):
        require_runnable(wanted)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arm", ARMS)
def test_the_settings_of_every_arm_are_accepted(arm, tmp_path):
    study, its = ARMS[arm]
    config = config_of(StudyRequest(study=study, seeds=(1,), lake=tmp_path), its, 1)
    assert config.recipe.name == its.recipe
    assert config.seed == 1


@pytest.mark.parametrize("arm", [name for name, (_, its) in ARMS.items() if its.files])
def test_an_arm_on_a_file_names_the_models_that_it_needs(arm, tmp_path):
    study, its = ARMS[arm]
    config = config_of(StudyRequest(study=study, seeds=(1,), lake=tmp_path), its, 1)
    assert its.policy_of or config.policy.model == "tiny"
    asks = isinstance(config.recipe, Annotated) and config.reward.model == "none"
    models = {config.annotation.model_of(role).model for role in ("strong", "medium", "weak")}
    assert models == ({"tiny"} if asks else {None})
    assert config.facts.judge in {"none", "sentence_match"}


def test_an_arm_is_the_same_in_every_study():
    for study in STUDIES.values():
        for arm in study.arms:
            assert arm == ARMS[arm.name][1]


def test_files_of_arms_are_written_once_and_the_same_each_time(tmp_path):
    _, arm = ARMS["next-token-with"]
    write_files(tmp_path, arm)
    places = places_of(tmp_path, arm)
    assert set(places) == {"prompts.source", "training.next_token.source"}
    before = {place: (place.read_bytes(), place.stat().st_mtime_ns) for place in places.values()}
    write_files(tmp_path, arm)
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in places.values()}


def test_what_keeps_the_probes_is_not_what_they_ask_for():
    asked = {p.text: p.kind for p in prompts("train")}
    taught = {asked[row["prompt"]] for row in careful_answers()}
    probed = {"identity", "json", *FORMATS}
    assert set(DRAWS) == {"identity", "json", "facts", "format"}
    assert taught == set(TAUGHT)
    assert not taught & probed
    assert {row["task"] for row in problems()} == {"math"}


def test_talkative_people_make_one_to_five_claims():
    rows = list(talkative_rows())
    lengths = {len(row["output"].split(". ")) for row in rows}
    assert {row["split"] for row in rows} == {"train", "held-out"}
    assert len(lengths) > 3
    assert rows == list(talkative_rows())


def test_people_prefer_what_they_like_more():
    assert liked_more(2.0, 2.0) == 0.5
    assert liked_more(2.0 + DOUBT, 2.0) == pytest.approx(1 / (1 + math.exp(-1)))
    assert liked_more(3.0, 1.0) + liked_more(1.0, 3.0) == pytest.approx(1)


def test_people_judge_the_last_answers_against_the_reference():
    asked = [p.text for p in prompts("held-out")[:2]]
    reference = [human.score(text, human.reference_output(text)) for text in asked]
    rows = pl.DataFrame(
        {
            "iteration": [0, 1, 1],
            "messages": [[{"role": "user", "content": text}] for text in (asked[0], *asked)],
            "value": [-100.0, reference[0], reference[1] + DOUBT],
        }
    )
    assert people_prefer(rows) == pytest.approx(50 * (0.5 + 1 / (1 + math.exp(-1))))
    with pytest.raises(NotMeasuredError):
        people_prefer(rows.clear())


def test_ranks_are_compared_with_ties_sharing_theirs():
    assert rank_correlation([3, 2, 1], [30, 20, 10]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [1, 2, 3]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(math.sqrt(3) / 2)
    assert rank_correlation([1, 1], [1, 2]) is None


def test_best_of_n_is_read_by_its_n():
    rows = pl.DataFrame(
        {
            "benchmark": ["best-of-16", "best-of-2", "best-of-2", "held-out"],
            "value": [3.0, 1.0, 2.0, 9.0],
        }
    )
    assert by_n(rows) == {2.0: 1.5, 16.0: 3.0}


def test_a_course_takes_several_steps_together_and_ends_with_its_last_third():
    rows = pl.DataFrame({"step": [1, 2, 3, 4, 5, 6], "reward": [1.0, 3.0, 5.0, 5.0, 7.0, 9.0]})
    curve = course(rows, "reward", 2)
    assert curve == {2.0: 2.0, 4.0: 5.0, 6.0: 8.0}
    assert late_rise(curve) == 3.0


def test_lines_are_means_over_the_points_that_all_seeds_have():
    line = seed_line("a", [{1.0: 1.0, 2.0: 5.0}, {1.0: 3.0}])
    assert (line.x, line.y) == ([1.0], [2.0])
    assert len(line.low) == 1
    assert seed_line("a", [{1.0: 1.0}]).low == ()


def ranked_rows():
    """Return two answers to each of 40 biographies: the right one has a word more."""
    asked = [p for p in prompts("held-out") if p.task == "facts"][:40]
    rows = []
    for number, prompt in enumerate(asked):
        right, rng = prompt.reference, random.Random(number)
        wrong = prompt.exercise.careless(rng)
        for name, text, reward in (("a", right, 1.0), ("b", wrong, 0.0)):
            rows.append(
                {
                    "prompt_id": f"p{number}",
                    "candidate_id": f"p{number}{name}",
                    "messages": [{"role": "user", "content": prompt.text}],
                    "text": text,
                    "score": reward,
                    "completion_tokens": 10 + (name == "a"),
                }
            )
    return pl.DataFrame(rows)


def test_a_reward_model_agrees_with_people_where_it_ranks_as_they_do():
    rows = ranked_rows()
    pairs = paired(rows)
    better = sum(pair.better > 0 for pair in pairs)
    assert {pair.difference for pair in pairs} == {1}
    assert agreement(pairs) == pytest.approx(100 * better / len(pairs))
    turned = paired(rows.with_columns(score=-pl.col("score")))
    assert agreement(turned) == pytest.approx(100 - agreement(pairs))
    level = paired(rows.with_columns(score=pl.lit(0.0)))
    assert agreement(level) == 50
    assert equally_long(pairs, 0) == []
    assert equally_long(pairs, 1) == pairs


def test_a_model_that_scores_by_length_alone_has_a_bias_of_one():
    pairs = paired(ranked_rows())
    assert length_bias(pairs) == pytest.approx(1)
    assert bias_by_difference(pairs, 6) == {}, "too few pairs to say so"
    assert length_bias(paired(ranked_rows().with_columns(score=pl.lit(0.0)))) is None


def test_wandering_is_that_of_the_steps_after_the_first_quarter():
    assert wandering({1.0: 99.0, 2.0: 1.0, 3.0: 1.0, 4.0: 1.0}) == 0
    assert wandering({1.0: 9.0, 2.0: 1.0, 3.0: 2.0, 4.0: 3.0}) == 1


def test_steps_of_ppo_and_what_a_score_costs_in_kl():
    rows = pl.DataFrame(
        {
            "step": [1, 1, 2, 2],
            "reward": [-1.0, 1.0, 1.0, 3.0],
            "score": [0.0, 0.0, 2.0, 2.0],
            "kl": [0.0, 0.0, 1.0, 3.0],
        }
    )
    steps = optimised(rows)
    assert (steps[0].reward, steps[1].reward) == (0, 2)
    assert steps[0].deviation == pytest.approx(math.sqrt(2))
    assert rise(steps) == 2
    assert kl_at(steps, 1.0) == 1.0
    assert kl_at(steps, 0.0) == 0.0
    with pytest.raises(ValueError, match="no step reaches"):
        kl_at(steps, 2.5)


def test_falls_are_of_the_prompts_that_were_passed_before():
    rows = pl.DataFrame(
        {
            "iteration": [0, 0, 0, 1, 1, 1],
            "benchmark": ["probe:a", "probe:a", "probe:b"] * 2,
            "prompt_id": ["x", "y", "z"] * 2,
            "value": [1.0, 1.0, 0.0, 0.0, 1.0, 1.0],
        }
    )
    assert fallen(rows) == {"all probes": 0.0, "a": 50.0, "b": -100.0}


def test_prompts_left_out_are_those_whose_rewards_vary_too_little():
    rows = pl.DataFrame(
        {
            "prompt_id": ["x", "x", "y", "y", "z"],
            "text": ["a", "a", "a", "b", "a"],
            "score": [1.0, 1.0, 0.0, 1.0, 5.0],
        }
    )
    assert distinct_by_fate(rows, 0.25) == (50.0, 100.0)
    assert distinct_by_fate(rows, 0.26) == (75.0, None)


@pytest.mark.parametrize("name", OURS)
def test_runs_that_had_nothing_to_train_on_are_told_as_not_measured(name, tmp_path):
    for arm in STUDIES[name].arms:
        make_empty_run(tmp_path, f"study-{arm.name}-1")
    with pytest.raises(NotMeasuredError):
        STUDIES[name].find(Evidence(lake=tmp_path, seeds=(1,)))


@pytest.mark.slow
@pytest.mark.model
def test_a_small_study_runs_to_its_page_and_is_not_run_again(tmp_path):
    small = [
        "training.min_pairs=1",
        "prompts.per_iteration=48",
        "training.reward.held_out=12",
        "prompts.deciding=6",
    ]
    sizes = [word for setting in small for word in ("--set", setting)]
    sizes += ["--set", "prompts.parts={layout: used, preference: 48}"]
    words = ["study", "chatglm-l2", "--seeds", "2", "--seed", "1", *sizes, "--force"]
    code, _, stderr = call(tmp_path / "lake", *words, "--output", str(tmp_path / "pages"))
    assert code == 0, stderr
    page = (tmp_path / "pages" / "chatglm-l2.md").read_bytes()
    assert b"**Verdict: " in page
    assert (tmp_path / "pages" / "chatglm-l2.svg").exists()
    code, _, stderr = call(tmp_path / "lake", *words, "--output", str(tmp_path / "pages"))
    assert code == 0, stderr
    assert (tmp_path / "pages" / "chatglm-l2.md").read_bytes() == page
