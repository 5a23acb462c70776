"""A lake with more runs than a process can have open files."""

import json
import shutil
import subprocess
import sys

import pytest
from lakes import asked_lake

from lpfloop.stores.lake import run_names

RUNS, OPEN_FILES = 60, 160
"""An open run takes four file descriptors."""
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
from lpfloop.loop.cli.app import main
sys.argv = ["lpfloop", *sys.argv[1:]]
main()
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many") / "lake"
    asked_lake(folder)
    for number in range(RUNS - len(run_names(folder))):
        shutil.copytree(folder / "runs" / "a", folder / "runs" / f"b{number}")
    return folder


def test_sql_over_many_runs(lake, subtests) -> None:
    for table in ("candidates", "units", "query_table('cand' || 'idates')"):
        with subtests.test(table):
            query = f"select count(distinct run) as n from {table}"  # noqa: S608
            words = ("sql", query, "--json", "--lake", str(lake))
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM.format(files=OPEN_FILES), *words],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout) == [{"n": RUNS}]
