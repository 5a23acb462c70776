"""`lpfloop lineage`: up to the source and M_0, down to the checkpoints and their evaluations."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import M0, M1, MADE_PAIR, told_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app
from lpfloop.loop.lake.trace.graph import Edge, reached
from lpfloop.stores.derived import deriving
from lpfloop.stores.records import Pair
from lpfloop.stores.schemas import to_table

TABLE = "derived:by-reward"


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lineage")
    told_run(folder)
    return folder


@pytest.fixture
def call(lake):
    return lambda *a: CliRunner().invoke(app, [*map(str, a), "--lake", str(lake)])


@pytest.fixture
def trace(call):
    def trace(identity):
        told = call("lineage", identity, "--json")
        assert told.exit_code == 0, told.stderr
        return json.loads(told.stdout)

    return trace


def edges(traced):
    return {(e["source"], e["relation"], e["target"]) for e in traced["edges"]}


def test_a_pair_is_traced_up_to_its_source_and_the_first_model(trace):
    traced = trace("pair-made")
    assert traced["root"] == "pair-made"
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
    } <= edges(traced)
    assert {"prompt", "source", "checkpoint"} <= {node["kind"] for node in traced["nodes"]}


def test_a_pair_is_traced_down_to_the_evaluation_of_what_was_trained_on_it(trace):
    found = edges(trace("pair-made"))
    assert ("pair-made", "trained on", M1) in found
    assert (M1, "evaluated", f"held-out:{M1[:24]}") in found
    assert (M0, "evaluated", f"held-out:{M0[:24]}") not in found


def test_what_has_nothing_to_do_with_an_id_is_left_out(trace):
    ids = {node["id"] for node in trace("crit-bad")["nodes"]}
    assert {"cand-bad", "prompt-1", "pair-made", M1, M0} <= ids
    assert not ids & {"cand-good", "cand-better", "crit-good"}


def test_a_prompt_leads_to_everything_made_of_it(trace):
    ids = {node["id"] for node in trace("prompt-1")["nodes"]}
    assert {"cand-good", "crit-good", "cand-better", "crit-better", "pair-made", M1} <= ids
    assert "pref-made" in ids
    assert "cand-fair" not in ids


def test_a_checkpoint_comes_from_its_parents_and_from_counted_pairs(trace):
    traced = trace(M1)
    assert (M0, "trained from", M1) in edges(traced)
    (counted,) = [node for node in traced["nodes"] if node["kind"] == "pairs"]
    assert counted["label"].startswith("1 pairs of iteration 1 by success_vs_failure")
    assert (counted["id"], "trained on", M1) in edges(traced)
    below = edges(trace(M0))
    assert {(M0, "trained from", M1), (M1, "evaluated", f"held-out:{M1[:24]}")} <= below


def test_the_tree_names_every_node_and_draws_none_twice(call):
    told = call("lineage", "pair-made").stdout
    assert told.startswith("pair pair-made: rule success_vs_failure, rank 0, iteration 1")
    assert "comes from" in told
    assert "led to" in told
    assert "chosen: candidate cand-better: refinement, iteration 1, reward 1.500" in told
    assert f"trained on: checkpoint {M1[:24]}: M_1" in told
    assert told.count("reward 0.500") == 1
    assert told.count("see above") >= 1


def test_edges_can_be_had_as_rows(call):
    lines = call("lineage", "cand-bad", "--format", "csv").stdout.splitlines()
    assert lines[0] == "source,source_kind,relation,target,target_kind"
    assert "cand-bad,candidate,rejected,pair-made,pair" in lines


def test_pairs_that_were_derived_anew_belong_to_the_lineage(tmp_path):
    folder = told_run(tmp_path)
    pair = replace(MADE_PAIR, pair_id="pair-anew", rule="top_reward")
    with deriving(folder) as draft:
        draft.add("pairs", to_table(Pair, [pair]))
        draft.publish("by-reward", {"rule": "top_reward"})
    where = ("--lake", str(tmp_path))
    told = CliRunner().invoke(app, ["lineage", "cand-better", "--json", *where])
    found = edges(json.loads(told.stdout))
    assert {("cand-better", "chosen", "pair-anew"), ("pair-anew", "kept in", TABLE)} <= found
    shown = CliRunner().invoke(app, ["show", "pair-anew", *where])
    assert shown.exit_code == 0, shown.stderr
    assert "derived table by-reward: chosen of pair" in " ".join(shown.stdout.split())


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20), st.booleans())
def test_any_graph_is_walked_to_its_end(pairs, up):
    graph = [Edge(source=str(a), target=str(b), relation="made") for a, b in pairs]
    found = reached(graph, "0", up=up)
    assert len(set(found)) <= len(graph)
    seen = {"0"}
    for edge in found:
        near, far = (edge.target, edge.source) if up else (edge.source, edge.target)
        assert near in seen
        seen.add(far)
    closed = [e for e in graph if (e.target if up else e.source) in seen]
    assert set(closed) == set(found)
