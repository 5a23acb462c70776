"""`lpfloop model`: which is meant, where it is, which is best, a copy of it, a talk with it."""

import json
import shutil
import stat
from dataclasses import replace

import pytest
from published import FIRST, SUCCESS, add_rows, published_run
from told import PAIRED, told_run, write_run
from typer.testing import CliRunner

import lpfloop
from examples import CHECKPOINT
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.policies.workers.identity import check_folder
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.garbage import collect, garbage
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Checkpoint, Prompt
from lpfloop.stores.sealed import MANIFEST, file_sha256


@pytest.fixture(scope="module")
def lake(tmp_path_factory, tiny_policy):
    folder = tmp_path_factory.mktemp("models")
    told_run(folder)
    published_run(folder, tiny_policy)
    return folder


@pytest.fixture(scope="module")
def ids(lake):
    with lpfloop.open("r", lake=lake) as run:
        return run.checkpoints().sort("iteration").collect()["checkpoint_id"].to_list()


@pytest.fixture
def small_folder(tmp_path):
    """A folder in place of a model whose files are not looked at."""
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def invoke(lake, *arguments, stdin=None):
    return CliRunner().invoke(app, [*map(str, arguments), "--lake", str(lake)], input=stdin)


def document(lake, *arguments):
    told = invoke(lake, *arguments, "--json")
    assert told.exit_code == 0, told.stderr
    return json.loads(told.stdout)


def refused(told, words, code=Exit.BAD_INPUT):
    assert told.exit_code == code, (told.stdout, told.stderr, told.exception)
    assert words in " ".join(told.stderr.split())


# which


@pytest.mark.parametrize(
    ("words", "run", "name"),
    [
        ([], "r", "M_2"),
        (["r"], "r", "M_2"),
        (["M_1"], "r", "M_1"),
        (["m_0"], "r", "M_0"),
        (["latest"], "r", "M_2"),
        (["best"], "r", "M_1"),
        (["told", "M_1"], "told", "M_1"),
        (["told:M_0"], "told", "M_0"),
        (["told"], "told", "M_1"),
        (["told", "1b1b"], "told", "M_1"),
        (["1b1b1b"], "told", "M_1"),
    ],
)
def test_a_model_is_called_by_its_place_in_the_run_or_by_its_id(lake, words, run, name):
    found = document(lake, "model", *words)
    assert (found["run"], found["name"]) == (run, name)


def test_a_run_without_models_is_passed_over_by_default(tmp_path, small_folder):
    published_run(tmp_path, small_folder)
    write_run(tmp_path, "imported", {})
    assert document(tmp_path, "model", "M_2")["run"] == "r"
    refused(invoke(tmp_path, "model", "imported"), "run imported has no model yet")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["M_7"], "run r has no model 'M_7'"),
        (
            ["r", "nonsense"],
            "give M_T, M_T@STEP, latest, best, or the beginning of a checkpoint's id",
        ),
        (["nowhere"], "there is no run 'nowhere'"),
        (["nowhere:M_1"], "there is no run 'nowhere'"),
        (["a", "b", "c"], "3 words: give a run and a model"),
        (["--chat", "--serve"], "--serve and --chat exclude each other"),
        (["--port", "3"], "--port belongs to --serve"),
        (["--metric", "reward"], "--metric says by what the best is the best"),
    ],
)
def test_what_names_no_model_is_refused_in_a_sentence(lake, words, said):
    refused(invoke(lake, "model", *words), said)


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (["show", "M_1"], "M_1, run r"),
        (["show", "latest"], "M_2, run r"),
        (["show", "best"], "M_1, run r"),
        (["show", "told:M_1"], "M_1, run told"),
        (["show", "M_1", "--run", "told"], "M_1, run told"),
    ],
)
def test_show_takes_a_models_name_for_an_id(lake, command, title):
    told = invoke(lake, *command)
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith(title)


def test_lineage_takes_a_models_name_for_an_id(lake, ids):
    assert document(lake, "lineage", "M_2")["root"] == ids[2]


def test_a_prompt_of_that_very_id_is_meant_before_a_model(tmp_path, small_folder):
    published_run(tmp_path, small_folder)
    add_rows(run_folder(tmp_path, "r"), {7: {Prompt: [replace(PAIRED, prompt_id="latest")]}})
    assert invoke(tmp_path, "show", "latest").stdout.startswith("latest, run r")


def test_diff_takes_models_names(lake):
    by_name = document(lake, "diff", "r", "--from", "M_0", "--to", "best")
    assert by_name == document(lake, "diff", "r", "--from", "0", "--to", "1")
    refused(invoke(lake, "diff", "r", "--from", "M_9"), "run r has no model 'M_9'")


def test_eval_takes_models_names(lake):
    rows = document(lake, "eval", "run", "r", "--iteration", "latest")
    assert {row["iteration"] for row in rows} == {2}


def test_an_iteration_is_a_number_or_a_models_name(lake):
    assert document(lake, "candidates", "told", "--iteration", "M_1")
    refused(invoke(lake, "candidates", "told", "--iteration", "two"), "two is no iteration")


# what is told


def test_its_facts_and_figures_are_told_beside_those_of_the_first_model(lake, ids, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    folder = run_folder(lake, "r") / "checkpoints" / ids[1]
    found = document(lake, "model", "M_1")
    assert found["path"] == str(folder)
    assert found["parent"] == f"M_0 {FIRST}"
    assert (found["recipe"], found["steps"], found["state"]) == ("rlrf", 1, "here")
    assert found["weights"]["types"] == ["F16"]
    assert found["weights"]["bytes"] == (folder / "model.safetensors").stat().st_size
    (accuracy,) = [f for f in found["figures"] if f["metric"] == "math_accuracy"]
    assert (round(accuracy["value"], 3), round(accuracy["first"], 3)) == (0.667, 0.167)
    page = invoke(lake, "model", "M_1").stdout
    for words in (ids[1], str(folder), "0.91 million parameters, F16", "+0.500", "--serve"):
        assert words in page


def test_all_models_are_listed(lake, ids):
    rows = document(lake, "model", "r", "--all")
    assert [row["name"] for row in rows] == ["M_0", "M_1", "M_2"]
    assert [row["checkpoint_id"] for row in rows] == ids
    assert [row["best"] for row in rows] == [False, True, False]
    assert {row["figure"] for row in rows} == {"verified"}


def test_status_ends_with_the_latest_model(lake, ids):
    told = invoke(lake, "status", "r")
    folder = run_folder(lake, "r") / "checkpoints" / ids[2]
    assert f"latest model: M_2 {ids[2][:12]}, {folder}; `lpfloop model r M_2 --lake" in told.stdout


def test_status_shows_no_empty_table_before_anything_is_measured(tmp_path):
    write_run(tmp_path, "new", {0: {Checkpoint: [CHECKPOINT]}})
    told = invoke(tmp_path, "status", "new")
    assert told.exit_code == 0, told.stderr
    assert "Held-out" not in told.stdout


def test_python_finds_it_too(lake, ids):
    with lpfloop.open("r", lake=lake) as run:
        assert run.model("best").id == ids[1]
        assert run.model().path == run_folder(lake, "r") / "checkpoints" / ids[2]


# the best


def test_the_best_is_told_with_its_figure_and_its_lead(lake):
    best = document(lake, "model", "best")["best"]
    assert best.startswith("the best by verified success: 0.667 ± ")
    assert "M_2 0.500 (1.0 standard errors of the difference behind)" in best


@pytest.mark.parametrize(
    ("measured", "by", "name", "figure"),
    [
        ({"math_accuracy": [[1, 0], [1, 0], [0, 1]]}, None, "M_0", "verified success"),
        (
            {"verified": [[1, 0], [1, 1], [0, 0]], "math_accuracy": [[0, 0], [0, 0], [1, 1]]},
            None,
            "M_1",
            "verified success",
        ),
        (
            {"math_accuracy": [[1], [0], [0]], "general_fulfilled": [[1], [1], [0]]},
            None,
            "M_0",
            "verified success",
        ),
        ({"win_rate": [[0, 0], [0, 1], [1, 1]]}, None, "M_2", "win-rate"),
        (
            {"rating:A": [[1, 0], [1, 1], [1, 1]], "rating:B": [[1, 1], [0, 1], [1, 1]]},
            None,
            "M_2",
            "that the critic rates 1 in all aspects",
        ),
        ({**SUCCESS, "reward": [[0.5], [0.1], [0.2]]}, "reward", "M_0", "the best by reward"),
        ({**SUCCESS, "win_rate": [[0], [0], [1]]}, "win_rate", "M_2", "win-rate"),
    ],
)
def test_the_best_is_that_of_the_first_figure_that_was_measured(
    tmp_path, small_folder, measured, by, name, figure
):
    published_run(tmp_path, small_folder, measured=measured)
    found = document(tmp_path, "model", "best", *(() if by is None else ("--metric", by)))
    assert found["name"] == name
    assert figure in found["best"]


@pytest.mark.parametrize(
    ("measured", "by", "said"),
    [
        ({}, None, "nothing measured on its held-out prompts that tells which model is best"),
        ({"mean_length": [[3], [2], [1]]}, None, "nothing is measured that could tell"),
        (SUCCESS, "mean_length", "--metric mean_length: more of it is not better"),
        (SUCCESS, "reward", "measured are verified, math_accuracy"),
    ],
)
def test_without_a_figure_there_is_no_best(tmp_path, small_folder, measured, by, said):
    published_run(tmp_path, small_folder, measured=measured)
    refused(invoke(tmp_path, "model", "best", *(() if by is None else ("--metric", by))), said)


def test_adapters_are_named_where_a_model_has_them(lake):
    adapter = document(lake, "model", "M_2")["adapter"]
    assert adapter == f"{document(lake, 'model', 'M_2')['path']}/adapter"
    page = invoke(lake, "model", "M_2").stdout
    assert "merged into the weights" in " ".join(page.split())
    assert document(lake, "model", "M_1")["adapter"] is None


# a copy


def test_a_copy_is_whole_private_and_named_by_what_it_holds(lake, ids, tmp_path):
    told = invoke(lake, "model", "M_1", "--copy", tmp_path / "m")
    assert told.exit_code == 0, told.stderr
    assert file_sha256(tmp_path / "m" / MANIFEST) == ids[1]
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "m").iterdir()} == {0o600}
    assert check_folder(tmp_path / "m")


def test_the_first_model_is_copied_without_what_is_no_part_of_it(tmp_path, tiny_policy):
    own = tmp_path / "own"
    shutil.copytree(tiny_policy, own)
    (own / "notes.txt").write_text("mine")
    published_run(tmp_path / "lake", own)
    assert invoke(tmp_path / "lake", "model", "M_0", "--copy", tmp_path / "m").exit_code == 0
    names = {path.name for path in (tmp_path / "m").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} < names
    assert "notes.txt" not in names


def test_a_copy_replaces_nothing_but_an_earlier_copy(lake, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all my work")
    refused(invoke(lake, "model", "--copy", mine), "is there already")
    refused(invoke(lake, "model", "--copy", mine, "--force"), "was not written by lpfloop")
    assert (mine / "thesis.txt").read_text() == "all my work"
    assert invoke(lake, "model", "--copy", tmp_path / "m").exit_code == 0
    assert invoke(lake, "model", "M_1", "--copy", tmp_path / "m", "--force").exit_code == 0
    assert (tmp_path / "m" / "number.txt").read_text() == "1"
    refused(invoke(lake, "model", "--copy", lake / "m"), "lies in a lake")


def test_a_damaged_model_is_not_copied(tmp_path, tiny_policy):
    ids = published_run(tmp_path / "lake", tiny_policy)
    weights = run_folder(tmp_path / "lake", "r") / "checkpoints" / ids[2] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    told = invoke(tmp_path / "lake", "model", "--copy", tmp_path / "m")
    refused(told, "was altered", code=Exit.FAULT)
    assert not (tmp_path / "m").exists()


def test_a_model_whose_weights_were_removed_says_so(tmp_path, tiny_policy):
    ids = published_run(tmp_path / "lake", tiny_policy)
    journal = Journal(run_folder(tmp_path / "lake", "r"))
    collect(journal, garbage(journal, keep=1))
    journal.close()
    found = document(tmp_path / "lake", "model", ids[1][:8])
    assert (found["state"], found["path"]) == ("removed", None)
    told = invoke(tmp_path / "lake", "model", "M_1", "--copy", tmp_path / "m")
    refused(told, "the weights of M_1 of run r were removed by `lpfloop lake gc --keep`")


@pytest.mark.parametrize(
    ("place", "state", "said"),
    [
        ("http://127.0.0.1:9/v1", "served", "is served at http://127.0.0.1:9/v1"),
        ("/nowhere/model", "missing", "there is no such folder from here"),
    ],
)
def test_a_first_model_that_is_not_here_says_so(tmp_path, place, state, said):
    row = replace(CHECKPOINT, checkpoint_id=FIRST, path=place)
    write_run(tmp_path / "lake", "r", {0: {Checkpoint: [row]}})
    assert document(tmp_path / "lake", "model", "M_0")["state"] == state
    refused(invoke(tmp_path / "lake", "model", "M_0", "--copy", tmp_path / "m"), said)


def test_a_model_in_a_bucket_is_fetched(bucket, tmp_path, tiny_policy, monkeypatch):
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    place = f"s3://{bucket}/team/lake"
    ids = published_run(lake_folder(place), tiny_policy)
    shutil.rmtree(run_folder(lake_folder(place), "r") / "checkpoints")
    found = document(place, "model")
    assert (found["state"], found["place"]) == ("bucket", f"{place}/runs/r/checkpoints/{ids[2]}")
    told = invoke(place, "model", "M_2", "--copy", tmp_path / "m")
    assert told.exit_code == 0, told.stderr
    assert file_sha256(tmp_path / "m" / MANIFEST) == ids[2]


# a role


def test_a_runs_model_plays_a_role_in_another(lake, ids):
    folder = run_folder(lake, "r") / "checkpoints" / ids[1]
    told = invoke(lake, "config", "show", "--config", "own", "--critic", "r:M_1", "--json")
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["config"]["critic"]["model"] == str(folder)
    assert found["sources"]["critic.model"] == "--critic"
    assert f"--critic r:M_1 is M_1, in {folder}, every byte compared" in told.stderr
    refused(invoke(lake, "run", "--config", "own", "--policy", "r:M_8"), "has no model 'M_8'")
    refused(invoke(lake, "run", "--config", "own", "--policy", "s:M_1"), "there is no run 's'")


# a talk


@pytest.mark.model
def test_a_copy_is_loaded_by_transformers_and_answers_as_the_model(lake, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    invoke(lake, "model", "M_1", "--copy", tmp_path / "m")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m", local_files_only=True)
    asked = [{"role": "user", "content": "What is 7 + 5?"}]
    ids = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    drawn = model.generate(ids, do_sample=False, max_new_tokens=40)[0, ids.shape[1] :]
    said = tokenizer.decode(drawn, skip_special_tokens=True)
    chat = ["model", "M_1", "--chat", "--temperature", "0"]
    told = invoke(lake, *chat, stdin="What is 7 + 5?\n/reset\nWhat is 7 + 5?\n/what\n/quit\nno\n")
    assert told.exit_code == 0, told.stderr
    assert told.stdout.splitlines() == [said] * 2
    assert "by transformers, which starts faster than vLLM" in told.stderr
    assert "/what is no command here" in told.stderr
