"""People's labels in the place of annotators': which count, what they decide, what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from judges import SETTINGS
from turns import rows, turn

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import required_prompts
from lpfloop.loop.daemon.run_request import RunOptions
from lpfloop.loop.data.files import InputError
from lpfloop.loop.data.votes import majority
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.recipes import variant_of
from lpfloop.loop.recipes.missing_needs import parts_used
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.loop.run.panel import Panels
from lpfloop.loop.stages.people_labels import Layout, label_prompts, labelled, labels_of
from lpfloop.loop.stages.prefer import prefer
from lpfloop.stores.records import Preference, Prompt


def write(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pair(prompt: str, chosen: str = "yes", rejected: str = "no") -> dict[str, object]:
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def config(source: Sequence[object], variant: str = "dpo", *settings: str) -> RunConfig:
    named = f"annotation.source=[{', '.join(map(str, source))}]"
    return load_config("own", variant, ("policy.model=somewhere", named, *settings), {})


def votes(*told: tuple[str, str, str, str | None]) -> pl.DataFrame:
    names = ("first_id", "second_id", "annotator", "preferred")
    rows = pl.DataFrame(told, schema=dict.fromkeys(names, pl.String), orient="row")
    return rows.with_columns(
        preference_id=pl.format("v{}", pl.int_range(pl.len())),
        prompt_id=pl.lit("p"),
        first_score=pl.lit(None, pl.Float64),
        second_score=pl.lit(None, pl.Float64),
    )


def decided(*told: tuple[str, str, str, str | None]) -> dict[tuple[str, str], str | None]:
    rows = majority(votes(*told)).select("first_id", "second_id", "preferred").iter_rows()
    return {(one, other): preferred for one, other, preferred in rows}


def test_the_majority_decides_whoever_was_shown_first() -> None:
    assert decided(
        ("a", "b", "human:1", "first"),
        ("b", "a", "human:2", "second"),
        ("a", "b", "human:3", "second"),
        ("b", "c", "human:1", "tie"),
        ("b", "c", "human:2", "second"),
        ("c", "d", "human:1", "first"),
        ("c", "d", "human:2", "second"),
        ("d", "e", "human:1", None),
    ) == {("a", "b"): "first", ("b", "c"): "second", ("c", "d"): "tie", ("d", "e"): None}


def test_people_decide_before_models_and_each_by_the_last_word() -> None:
    assert decided(
        ("a", "b", "gpt", "first"),
        ("a", "b", "other", "first"),
        ("a", "b", "human:1", "first"),
        ("a", "b", "human:1", "second"),
        ("b", "c", "gpt", "first"),
    ) == {("a", "b"): "second", ("b", "c"): "first"}


@pytest.mark.parametrize("cycles", [False, True])
def test_the_scores_of_a_source_stand_in_the_pairs(tmp_path: Path, cycles: bool) -> None:
    scored = {"score_chosen": 8.0, "score_rejected": 3.0}
    file = write(tmp_path / "p.jsonl", {**pair("Which?"), **scored}, pair("What?"))
    settings = (f"annotation.source=[{file}]", f"annotation.drop_cycles={str(cycles).lower()}")
    config = load_config("tiny", None, (*SETTINGS, *settings), {})
    with turn(Job(config=config, lake=tmp_path, name="a")) as it:
        found = rows(it, prefer(it, *labelled(it)))
    told = {(p.prompt[0].content, p.chosen_reward, p.rejected_reward) for p in found}
    assert told == {("Which?", 8.0, 3.0), ("What?", None, None)}


def test_all_about_a_prompt_is_in_one_chunk_wherever_it_stands() -> None:
    def read():
        for name in "abcab":
            yield [prompt(name), name]

    def prompt(name: str) -> Prompt:
        return Prompt(
            prompt_id=name,
            task="general",
            split="train",
            messages=(),
            reference=None,
            checks=(),
            source="",
        )

    layout = Layout.of(read(), 2)
    assert [[made[1] for made in chunk] for chunk in layout.chunks(read())] == [
        ["a", "b", "a", "b"],
        ["c"],
    ]


def test_where_no_prompts_are_named_they_are_those_of_the_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "pairs.jsonl", *(pair(f"Is {n} odd?") for n in range(40)))
    prompts = required_prompts(config([file]), tmp_path)
    assert len(prompts) == 40
    assert {prompt.split for prompt in prompts} == {"train", "dev", "held-out"}
    beside = write(tmp_path / "own.jsonl", {"prompt": "Why?"}, {"prompt": "How?"})
    own = required_prompts(config([file], "ppo", f"prompts.source={beside}"), tmp_path)
    assert {prompt.messages[0].content for prompt in own} == {"Why?", "How?"}


@pytest.mark.parametrize("variant", ["dpo", "reward-model", "ppo", "feedme", "chatglm-ppo"])
def test_no_annotator_is_needed(tmp_path: Path, variant: str) -> None:
    source = [write(tmp_path / "pairs.jsonl", pair("a?"))]
    wanted = config(source, variant)
    assert Panels.of(wanted).training is None
    roles = {role.name for role in needed_roles(wanted)}
    assert not any(name.startswith("annotation") for name in roles)
    assert "preference" not in parts_used(variant_of(variant).recipe, wanted)
    assert labels_of(wanted, tmp_path) is not None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"prompt": "a?"}], "holds rows of prompts"),
        ([{"instruction": "a?", "output_1": "x", "output_2": "y", "preference": 0}], "no decided"),
        ([{"prompt": "a?", "chosen": "x", "rejected": 3}], "line 1: 'rejected' must be a text"),
        (
            [{"prompt_id": "1", **pair("a?")}, {"prompt_id": "1", **pair("b?")}],
            "line 2: the id '1' is that of another prompt",
        ),
    ],
)
def test_labels_that_cannot_be_used_are_refused(
    tmp_path: Path, rows: Sequence[Mapping[str, Any]], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        label_prompts(config([write(tmp_path / "rows.jsonl", *rows)]), tmp_path)


@pytest.mark.parametrize(
    "setting",
    ["annotation.flip_probability=0.1", "recipe.n=3", "annotation.strong.model=x"],
)
def test_settings_of_annotators_that_nobody_asks_are_refused(setting: str) -> None:
    named, name = "annotation.source=[a.jsonl]", setting.partition("=")[0]
    useful = ("annotation.drop_cycles=true", "assessment.reference=null")
    options = RunOptions(config="own", variant="dpo", settings=(named, *useful))
    assert options.resolved().annotation.drop_cycles
    said = replace(options, settings=(*options.settings, setting))
    with pytest.raises(ConfigError, match=f"{name} would change nothing: annotation.source names"):
        said.resolved()


@pytest.mark.parametrize("variant", ["rlrf", "ultrafeedback-dpo"])
def test_a_recipe_that_compares_nothing_takes_no_labels(tmp_path: Path, variant: str) -> None:
    file = write(tmp_path / "pairs.jsonl", pair("a?"))
    with pytest.raises(ConfigError, match=f"the recipe {variant} learns from no comparisons"):
        required_prompts(config([file], variant), tmp_path)


def test_an_imported_run_gives_its_votes_under_their_ids(tmp_path: Path) -> None:
    asked = {"instruction": "a?", "input": "", "cmp_key": "m_n", "gpt_result": 1}
    told = {"response1": "one", "response2": "two", "annotator1": 2, "annotator2": 2}
    file = write(
        tmp_path / "votes.jsonl",
        {**asked, **told},
        {**asked, "response1": "one", "response2": "six", "annotator1": 1, "annotator2": 2},
    )
    import_files(Import(lake=tmp_path, name="people", files=(file,), form="pandalm"))
    labels = labels_of(config(["run:people"]), tmp_path)
    assert labels is not None
    made = list(labels.read(3))
    said = [[v.annotator for v in rows if isinstance(v, Preference)] for rows in made]
    assert all({"human:annotator1", "human:annotator2", "gpt"} == {*names} for names in said)
    assert {row.iteration for rows in made for row in rows if not isinstance(row, Prompt)} == {3}
    assert label_prompts(config(["run:people"]), tmp_path)[0].messages[0].content == "a?"
