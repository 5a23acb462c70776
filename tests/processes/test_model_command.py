"""`lpfloop model` for a run with its files in a bucket."""

import json
import shutil

from lakes import published_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.stores.address import STATE, lake_folder
from lpfloop.stores.lake import run_folder
from lpfloop.stores.sealed import MANIFEST, file_sha256


def invoke(lake, *words):
    told = CliRunner().invoke(app, ["model", *map(str, words), "--lake", lake])
    assert told.exit_code == 0, told.stderr
    return told.stdout


def test_model_in_a_bucket_is_fetched(bucket, tmp_path, tiny_policy, environ):
    environ[STATE] = str(tmp_path / "state")
    place = f"s3://{bucket}/team/lake"
    ids = published_run(lake_folder(place), tiny_policy)
    shutil.rmtree(run_folder(lake_folder(place), "r") / "checkpoints")
    found = json.loads(invoke(place, "--json"))
    assert (found["state"], found["place"]) == ("bucket", f"{place}/runs/r/checkpoints/{ids[2]}")
    invoke(place, "M_2", "--copy", tmp_path / "m")
    assert file_sha256(tmp_path / "m" / MANIFEST) == ids[2]
