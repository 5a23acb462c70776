"""`lpfloop lineage`: up to the source and M_0, down to the checkpoints and their evaluations."""

import json

from lakes import M0, M1, MadeIteration, told_run, write_course
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app


def test_pair_up_and_down(tmp_path):
    told_run(tmp_path)
    lineage = ["lineage", "pair-made", "--json", "--lake", str(tmp_path)]
    told = CliRunner().invoke(app, lineage)
    assert told.exit_code == 0, told.stderr
    edges = json.loads(told.stdout)["edges"]
    found = {(e["source"], e["relation"], e["target"]) for e in edges}
    assert {
        ("cand-better", "chosen", "pair-made"),
        ("cand-bad", "rejected", "pair-made"),
        ("crit-better", "judged", "pair-made"),
        ("crit-bad", "judged", "pair-made"),
        ("cand-good", "refined", "cand-better"),
        ("crit-good", "reflected on", "cand-better"),
        ("prompt-1", "answered", "cand-good"),
        ("source test", "read from", "prompt-1"),
        (M0, "sampled by", "cand-good"),
        ("pair-made", "trained on", M1),
        (M1, "evaluated", f"held-out:{M1[:24]}"),
    } <= found
    assert (M0, "evaluated", f"held-out:{M0[:24]}") not in found


def test_evaluations_name_their_benchmark(tmp_path):
    told_run(tmp_path)
    told = CliRunner().invoke(app, ["lineage", "M_1", "--lake", str(tmp_path)])
    assert "evaluation: held-out: " in told.stdout, told.stderr


def test_policy_of_a_step(tmp_path):
    made = MadeIteration(policy_tokens=10, right=(0.2, 0.4), steps=(1, 2))
    write_course(tmp_path, "a", [made])
    told = CliRunner().invoke(app, ["lineage", "M_1@1", "--lake", str(tmp_path)])
    assert told.exit_code == 0, told.output
    assert "M_1@1, recipe" in told.stdout
