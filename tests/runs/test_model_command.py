"""`lpfloop model`: find a model, print its path, choose the best, copy it."""

import json
import stat

import pytest
from lakes import FIRST, published_run, told_run
from typer.testing import CliRunner

import lpfloop
from lpfloop.loop.cli.app import app
from lpfloop.loop.cli.common import Exit
from lpfloop.policies.workers.identity import check_folder
from lpfloop.stores.lake import run_folder
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
        return run.rows("checkpoints").sort("iteration").collect()["checkpoint_id"].to_list()


@pytest.fixture
def small_folder(tmp_path_factory):
    """A small folder instead of a model, whose files nobody reads."""
    folder = tmp_path_factory.mktemp("policy")
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


# the meant model


def test_model_by_place_or_id(lake, subtests):
    for words, run, name in [
        ([], "r", "M_2"),
        (["r"], "r", "M_2"),
        (["best"], "r", "M_1"),
        (["told", "M_1"], "told", "M_1"),
        (["told:M_0"], "told", "M_0"),
        (["told", "1b1b"], "told", "M_1"),
    ]:
        with subtests.test(case=" ".join(words)):
            found = document(lake, "model", *words)
            assert (found["run"], found["name"]) == (run, name)


def test_refused_names(lake, subtests):
    for words, said in [
        (["nowhere"], "no run 'nowhere'"),
        (["a", "b", "c"], "3 words"),
    ]:
        with subtests.test(case=" ".join(words)):
            refused(invoke(lake, "model", *words), said)


# the output


def test_facts_and_figures(lake, ids):
    folder = run_folder(lake, "r") / "checkpoints" / ids[1]
    found = document(lake, "model", "M_1")
    assert found["path"] == str(folder)
    assert found["parent"] == f"M_0 {FIRST}"
    assert (found["recipe"], found["steps"], found["state"]) == ("rlrf", 1, "here")
    assert found["bytes"] == (folder / "model.safetensors").stat().st_size
    first, own = [row for row in found["results"]["rows"] if row["figure"] == "verified"]
    assert (first["iteration"], own["iteration"]) == (0, 1)
    assert (round(own["value"], 3), round(first["value"], 3)) == (0.667, 0.167)
    assert own["change"] == pytest.approx(own["value"] - first["value"])
    assert ids[1] in invoke(lake, "model", "M_1").stdout


# the best


def test_best_by_first_measured(tmp_path_factory, small_folder, subtests):
    for measured, name, figure in [
        ({"math_accuracy": [[1, 0], [1, 0], [0, 1]]}, "M_0", "by verified"),
        (
            {"verified": [[1, 0], [1, 1], [0, 0]], "math_accuracy": [[0, 0], [0, 0], [1, 1]]},
            "M_1",
            "by verified",
        ),
        ({"win_rate": [[0, 0], [0, 1], [1, 1]]}, "M_2", "win-rate"),
        (
            {"rating:A": [[1, 0], [1, 1], [1, 1]], "rating:B": [[1, 1], [0, 1], [1, 1]]},
            "M_2",
            "by approval",
        ),
    ]:
        with subtests.test(case=name):
            tmp_path = tmp_path_factory.mktemp("case")
            published_run(tmp_path, small_folder, measured=measured)
            found = document(tmp_path, "model", "best")
            assert found["name"] == name
            assert figure in found["best"]


# a copy


def test_copy_is_whole_and_private(lake, ids, tmp_path):
    told = invoke(lake, "model", "M_1", "--copy", tmp_path / "m")
    assert told.exit_code == 0, told.stderr
    assert file_sha256(tmp_path / "m" / MANIFEST) == ids[1]
    assert {stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "m").iterdir()} == {0o600}
    assert check_folder(tmp_path / "m")


def test_copy_replaces_only_copies(lake, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("all my work")
    refused(invoke(lake, "model", "--copy", mine), "is there already")
    refused(invoke(lake, "model", "--copy", mine, "--force"), "was not written by lpfloop")
    assert (mine / "thesis.txt").read_text() == "all my work"
    assert invoke(lake, "model", "--copy", tmp_path / "m").exit_code == 0
    assert invoke(lake, "model", "M_1", "--copy", tmp_path / "m", "--force").exit_code == 0
    assert (tmp_path / "m" / "number.txt").read_text() == "1"
    refused(invoke(lake, "model", "--copy", lake / "m"), "is inside a lake")


def test_damaged_model_not_copied(tmp_path, tiny_policy):
    ids = published_run(tmp_path / "lake", tiny_policy)
    weights = run_folder(tmp_path / "lake", "r") / "checkpoints" / ids[2] / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    told = invoke(tmp_path / "lake", "model", "--copy", tmp_path / "m")
    refused(told, "was altered", code=Exit.FAULT)
    assert not (tmp_path / "m").exists()


# a role


def test_model_in_another_role(lake, ids):
    folder = run_folder(lake, "r") / "checkpoints" / ids[1]
    told = invoke(lake, "config", "show", "--config", "own", "--critic", "r:M_1", "--json")
    assert told.exit_code == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["config"]["critic"]["model"] == str(folder)
    assert found["sources"]["critic.model"] == "--critic"
    refused(
        invoke(lake, "run", "--config", "own", "--policy", "r:M_8"), "does not have a model 'M_8'"
    )
    refused(invoke(lake, "run", "--config", "own", "--policy", "s:M_1"), "no run 's'")
