"""`lpfloop judge-check` reads the published forms of judgments and measures judges on them."""

import csv
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.evaluation.judge_check import Settings, check
from lpfloop.loop.evaluation.judge_statistics import majority_standard, matched, unread_bounds
from lpfloop.loop.evaluation.judgment_formats import PEOPLE
from lpfloop.loop.evaluation.judgment_sources import judgments_of, preference
from lpfloop.loop.evaluation.judgments import JudgedOutput, Judgment, OutputPair, collect, has_list

LONG, SHORT = "a long answer " * 5, "short"
LIST = "- one\n- two\n"


def alpaca(annotator, preference, *, instruction="Say it.", first=LONG, second=SHORT, **more):
    return {
        "instruction": instruction,
        "output_1": first,
        "output_2": second,
        "annotator": annotator,
        "preference": preference,
        **more,
    }


def write(path, rows):
    path.write_text(
        json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows))
    )
    return path


def read(lake, *sources):
    return collect(judgments_of([str(source) for source in sources], lake, PEOPLE))


def measured(lake, *sources, name):
    found = {each.name: each for each in check(read(lake, *sources), Settings(draws=100))}
    return found[name]


def call(lake, *arguments):
    return CliRunner().invoke(app, ["judge-check", *map(str, arguments), "--lake", str(lake)])


def refusal(lake, *arguments):
    told = call(lake, *arguments)
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stdout == ""
    return told.stderr


# bringing together


def judgment(preferred, *, turned=False, annotator="judge", shown=None):
    first, second = JudgedOutput(key="a", text=LONG), JudgedOutput(key="b", text=SHORT)
    sides = (second, first) if turned else (first, second)
    return Judgment(
        pair=OutputPair(instruction="x", first=sides[0], second=sides[1]),
        annotator=annotator,
        human=False,
        preferred=preferred,
        shown=shown,
    )


TURNED = {"first": "second", "second": "first", "tie": "tie", None: None}
TURNED_ORDER = {"as_given": "swapped", "swapped": "as_given", None: None}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(TURNED)), st.sampled_from(list(TURNED_ORDER)), st.booleans()
        ),
        min_size=1,
    )
)
def test_it_does_not_matter_which_output_a_source_names_first(verdicts):
    plain = collect(judgment(preferred, shown=shown) for preferred, shown, _ in verdicts)
    mixed = collect(
        judgment(TURNED[preferred], shown=TURNED_ORDER[shown], turned=True)
        if turned
        else judgment(preferred, shown=shown)
        for preferred, shown, turned in verdicts
    )
    assert len(mixed.instructions) == 1
    assert mixed.longer.tolist() == plain.longer.tolist() == [-1]
    assert (mixed.judges[0].counts == plain.judges[0].counts).all()
    assert mixed.judges[0].unread == plain.judges[0].unread


def test_a_pair_of_equal_outputs_is_left_out(tmp_path):
    path = write(tmp_path / "a.json", [alpaca("judge", 1, first="same", second="same")])
    assert not len(read(tmp_path, path).instructions)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- one\n- two", True),
        ("Take:\n1. flour\n2) milk", True),
        ("* only one", False),
        ("1.5 and -3\nare numbers", False),
        ("a - b\nc - d", False),
    ],
)
def test_a_list_has_two_items(text, expected):
    assert has_list(text) is expected


def test_an_output_counts_as_longer_by_more_than_thirty_characters(tmp_path):
    rows = [
        alpaca("judge", 1, first="x" * 40, second="y" * 10),
        alpaca("judge", 1, first="x" * 41, second="y" * 10),
    ]
    path = write(tmp_path / "a.json", rows)
    assert sorted(map(abs, read(tmp_path, path).longer)) == [0, 1]


# the formats


def test_alpacaeval_and_alpacafarm(tmp_path):
    judges = write(
        tmp_path / "judge.jsonl",
        [alpaca("gpt", 1), alpaca("gpt", None), alpaca("gpt", 1.5), alpaca("gpt", 1.2)],
    )
    people = write(
        tmp_path / "people.json",
        [alpaca(None, 2, annotator_index=3, first=SHORT, second=LONG)],
    )
    found = read(tmp_path, judges, people)
    assert found.people.labels.tolist() == [[1, 0, 0]]
    assert found.judges[0].labels.tolist() == [[2, 0, 1]]
    assert found.judges[0].unread == 1


def test_rows_without_an_annotator_have_the_name_of_their_file(tmp_path):
    path = write(tmp_path / "weighted.json", [alpaca(None, 1)])
    assert [votes.name for votes in read(tmp_path, path).judges] == ["weighted"]


def test_a_person_votes_once_on_a_pair(tmp_path):
    path = write(tmp_path / "a.json", [alpaca("human:eva", vote) for vote in (1, 2, 2)])
    assert read(tmp_path, path).people.labels.tolist() == [[1, 0, 0]]


def test_names_of_people_can_be_told(tmp_path):
    path = write(tmp_path / "a.json", [alpaca("eva", 1), alpaca("gpt", 2)])
    told = call(tmp_path, path, "--human", "ev", "--json")
    assert [each["kind"] for each in json.loads(told.stdout)["annotators"]] == ["people", "judge"]


def test_alpacas_input_belongs_to_the_instruction(tmp_path):
    rows = [alpaca("gpt", 1, input=given) for given in ("one", "two", "")]
    assert len(read(tmp_path, write(tmp_path / "a.json", rows)).instructions) == 3


def test_pandalm(tmp_path):
    row = {
        "instruction": "Say it.",
        "input": "",
        "response1": LONG,
        "response2": True,
        **{f"annotator{n}": vote for n, vote in enumerate((1, 1, 0), start=1)},
        "gpt_result": "Tie",
        "pandalm_result": 2,
        "bad_result": "garbage",
    }
    found = read(tmp_path, write(tmp_path / "a.jsonl", [row]))
    assert found.people.labels.tolist() == [[2, 0, 1]]
    assert {v.name: (v.labels.tolist()[0], v.unread) for v in found.judges} == {
        "gpt": ([0, 0, 1], 0),
        "pandalm": ([0, 1, 0], 0),
        "bad": ([0, 0, 0], 1),
    }


def mt_bench(judge, winner, *, models=("m", "n"), turn=1, **more):
    return {
        "question_id": 81,
        "model_a": models[0],
        "model_b": models[1],
        "judge": judge,
        "winner": winner,
        "turn": turn,
        **more,
    }


def test_mt_bench(tmp_path):
    rows = [
        mt_bench("expert_1", "model_a"),
        mt_bench("author_2", "model_b", models=("n", "m")),
        mt_bench("gpt4_pair", "tie (inconsistent)"),
        mt_bench("gpt4_pair", "model_b", turn=2),
    ]
    path = write(tmp_path / "a.jsonl", rows)
    found = read(tmp_path, path)
    assert found.people.labels.tolist() == [[2, 0, 0], [0, 0, 0]]
    assert found.instructions.tolist() == [0, 0]
    assert measured(tmp_path, path, name="gpt4_pair").both_orders.value == 0.5


def test_mt_bench_with_its_conversations_has_lengths(tmp_path):
    talks = {
        f"conversation_{side}": [
            {"role": role, "content": text}
            for role, text in (
                ("user", "?"),
                ("assistant", "."),
                ("user", "?"),
                ("assistant", said),
            )
        ]
        for side, said in (("a", LONG), ("b", SHORT))
    }
    path = write(tmp_path / "a.jsonl", [mt_bench("expert_1", "tie", turn=2, **talks)])
    assert read(tmp_path, path).longer.tolist() == [-1]


def llmbar(folder, winners):
    pairs = [{"input": "Say it.", "output_1": LONG, "output_2": LIST, "label": 2}] * len(winners)
    texts = write(folder / "llmbar_LLMBar__Natural.json", pairs)
    verdicts = folder / "winners.csv"
    names = ["subset", "llm", "strategy", "idx", "label", "winner_order1", "winner_order2"]
    with verdicts.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for index, said in enumerate(winners):
            writer.writerow(["LLMBar/Natural", "GPT", "CoT", index, 2, *said])
    return verdicts, texts


def test_llmbar_in_both_orders(tmp_path):
    files = llmbar(tmp_path, [("1", "1"), ("1", "2"), ("2", "2"), ("", "2")])
    found = measured(tmp_path, *files, name="GPT CoT")
    assert (found.verdicts, found.unread) == (7, 1)
    assert found.agreement.value == pytest.approx(4 / 7)
    assert found.both_orders.value == pytest.approx(2 / 3)
    # Shown first: the first output as given, the second one swapped.
    assert found.first_shown.value == pytest.approx((2 + 3) / 7)
    assert found.longer.value == pytest.approx(3 / 7)
    assert found.lists.value == pytest.approx(4 / 7)
    people = measured(tmp_path, *files, name="people")
    assert (people.verdicts, people.lists.value) == (4, 1)


def test_llmbars_own_layout_of_files(tmp_path):
    folder = tmp_path / "Dataset" / "LLMBar" / "Natural"
    folder.mkdir(parents=True)
    verdicts, texts = llmbar(tmp_path, [("1", "1")])
    texts.rename(folder / "dataset.json")
    assert read(tmp_path, verdicts, folder / "dataset.json").longer.tolist() == [-1]


# measures


def test_place_and_output_can_not_be_told_apart_in_one_order(tmp_path):
    files = llmbar(tmp_path, [("1", ""), ("2", "")])
    assert measured(tmp_path, *files, name="GPT CoT").first_shown is None


def test_several_judges_are_a_pool_with_a_variance(tmp_path):
    rows = [alpaca(f"judge {n}", 1 if n else 2) for n in range(4)]
    path = write(tmp_path / "a.json", rows)
    pool = measured(tmp_path, path, name="all judges")
    # Three of four are held out against two of three for the first, the last against three.
    assert pool.variance.value == 1 / 4
    assert measured(tmp_path, path, name="judge 1").variance is None
    assert (pool.both_orders, pool.repeats) == (None, None)


# what could not be read


def lossy():
    """Four pairs on which people agree; of the judge's replies on three, two cannot be read."""
    rows = [alpaca(f"human:{n}", 1, instruction=f"Q{q}") for q in range(4) for n in "ab"]
    given = ((0, 1), (1, 2), (2, None), (2, None), (3, 1))
    beside = alpaca("gpt", None, instruction="nobody judged this")
    return [*rows, *(alpaca("gpt", vote, instruction=f"Q{q}") for q, vote in given), beside]


def test_unread_replies_bound_an_agreement(tmp_path):
    found = measured(tmp_path, write(tmp_path / "a.json", lossy()), name="gpt")
    assert (found.unread, found.unread_share) == (3, 0.5)
    agreed = found.agreement
    assert agreed.value == pytest.approx(2 / 3)
    # Two of the five replies on pairs that people judged were lost, the third on another pair.
    assert (agreed.unread, agreed.unread_share) == (2, 0.4)
    assert (agreed.worst, agreed.best) == (0.4, 0.8)
    assert (found.longer.unread, found.longer.worst) == (3, None)
    people = measured(tmp_path, tmp_path / "a.json", name="people")
    assert (people.unread, people.held_out.unread_share) == (0, 0.0)


def test_where_people_are_split_no_unread_reply_would_be_wholly_right(tmp_path):
    rows = [alpaca("human:a", 1), alpaca("human:b", 2), alpaca("gpt", 1), alpaca("gpt", None)]
    found = measured(tmp_path, write(tmp_path / "a.json", rows), name="gpt")
    assert (found.agreement.worst, found.agreement.best) == (0.25, 0.5)


@given(st.lists(st.sampled_from([1, 2, 0, None]), min_size=1, max_size=12))
def test_no_verdict_that_was_lost_could_leave_the_bounds(votes):
    people = np.array([[2, 1, 0]] * len(votes))
    labels = {1: [1, 0, 0], 2: [0, 1, 0], 0: [0, 0, 1], None: [0, 0, 0]}
    counts = np.array([labels[vote] for vote in votes])
    missing = np.array([int(vote is None) for vote in votes])
    standard = majority_standard(people, 4)
    worst, best = unread_bounds(counts, missing, standard)
    reached = []
    for label in range(3):
        whole = counts + missing[:, None] * np.eye(3, dtype=np.int64)[label]
        ratio = matched(whole, standard)
        reached.append(ratio.numerator.sum() / ratio.denominator.sum())
    assert min(reached) == pytest.approx(worst)
    assert max(reached) == pytest.approx(best)


def test_the_tables_say_what_was_not_read_and_what_it_could_change(tmp_path):
    told = call(tmp_path, write(tmp_path / "a.json", lossy())).stdout
    assert re.search(r"gpt +3 +3 \(50\.0%\) +67 \[", told)
    assert re.search(
        r"wrong, and if all were right\n(?:.*\n){3,4} gpt +3 \(50\.0%\) +40\.0 to 80\.0", told
    )
    rows = [row for row in lossy() if row["preference"] is not None]
    told = call(tmp_path, write(tmp_path / "b.json", rows)).stdout
    assert "unread" not in told


# runs


def test_a_run_beside_the_people_of_a_file(tmp_path):
    lake = tmp_path / "lake"
    rows = [alpaca("gpt", 1), alpaca("gpt", 2, instruction="Again.", input="this")]
    judged = write(tmp_path / "judged.json", rows)
    told = CliRunner().invoke(
        app,
        ["import", str(judged), "--as", "alpacafarm", "--run", "judged", "--lake", str(lake)],
    )
    assert told.exit_code == 0, told.stderr
    people = write(
        tmp_path / "people.json",
        [
            alpaca("human:eva", 1),
            alpaca("human:eva", 1, instruction="Again.", input="this"),
        ],
    )
    found = measured(lake, "judged", people, name="gpt")
    assert found.agreement.value == 0.5
    assert found.agreement.instructions == 2


def stored(annotator="gpt", **more):
    """A stored preference for the second of two, beside the texts it is about."""
    row = {
        "prompt_id": "p",
        "messages": [{"role": "user", "content": "Say it."}],
        "first_id": "c1",
        "second_id": "c2",
        "first_text": SHORT,
        "second_text": LONG,
        "annotator": annotator,
        "preferred": "second",
        "flipped": False,
        "order": "swapped",
    }
    return preference({**row, **more}, PEOPLE)


def test_a_stored_preference_tells_the_order_that_was_shown():
    found = stored()
    assert (found.annotator, found.preferred, found.shown) == ("gpt", "second", "swapped")
    assert found.pair.instruction == "Say it."


def test_a_verdict_made_of_both_orders_has_none():
    both = [stored(order="both"), stored("human:eva", order="both")]
    found = collect(both)
    assert [judgment.shown for judgment in both] == [None, None]
    assert found.judges[0].labels.tolist() == found.people.labels.tolist() == [[1, 0, 0]]


def test_a_flip_is_the_coins_verdict_and_not_the_annotators():
    found = stored(flipped=True)
    assert (found.annotator, found.human, found.shown) == ("coin", False, None)


def test_of_people_the_order_is_not_known():
    found = stored("human:eva")
    assert (found.human, found.shown) == (True, None)


def test_conversations_and_lost_texts_are_known_by_what_there_is():
    turns = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
    found = stored(messages=turns, first_text=None)
    assert found.pair.instruction == '[["user", "a"], ["assistant", "a"], ["user", "a"]]'
    assert found.pair.first == JudgedOutput(key="c1", text=None)


# the command


def test_the_table_and_the_document_tell_the_same(tmp_path):
    rows = [alpaca("human:a", 1), alpaca("human:b", 1), alpaca("human:c", 2), alpaca("gpt", 1)]
    path = write(tmp_path / "a.json", rows)
    document = json.loads(call(tmp_path, path, "--json").stdout)
    assert (document["pairs"], document["instructions"]) == (1, 1)
    judge = document["annotators"][1]
    assert judge["agreement"] == {
        "value": 1.0,
        "low": None,
        "high": None,
        "n": 1,
        "instructions": 1,
        "unread": 0,
        "unread_share": 0.0,
        "worst": 1.0,
        "best": 1.0,
    }
    told = call(tmp_path, path)
    assert told.exit_code == 0
    assert "1 pairs, 1 instructions" in told.stdout
    assert re.search(r"gpt +1 +100 +100 +67", told.stdout)


def test_the_price_of_verdicts_stands_beside_their_agreement(tmp_path):
    rows = [
        alpaca("human:a", 1),
        alpaca("gpt", 1, price_per_example=0.02),
        alpaca("gpt", 1, price_per_example=0.04),
        alpaca("free", 2),
    ]
    path = write(tmp_path / "a.json", rows)
    document = json.loads(call(tmp_path, path, "--json").stdout)
    prices = {judge["name"]: judge["price"] for judge in document["annotators"]}
    assert prices == {"people": None, "free": None, "gpt": 0.03, "all judges": None}
    assert re.search(
        r"price of 1,000 verdicts *\n.*\n *gpt +30\.00 *\n", call(tmp_path, path).stdout
    )
    bad = write(tmp_path / "b.json", [alpaca("gpt", 1, price_per_example=-1)])
    assert "'price_per_example' must be a number from 0" in refusal(tmp_path, bad)


def test_the_plot_has_prices_and_the_matrix_of_annotators(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [
        alpaca(name, 1 + (number % 3 == 0), instruction=f"Say {number}.", **paid)
        for number in range(25)
        for name, paid in (("human:a", {}), ("human:b", {}), ("gpt", {"price_per_example": 0.01}))
    ]
    path, plot = write(tmp_path / "a.json", rows), tmp_path / "judges.svg"
    assert call(tmp_path, path, "--kappas", "--plot", plot).exit_code == 0
    drawn = plot.read_text()
    assert "Agreement with people, and its price" in drawn
    assert "Agreement of every two annotators" in drawn
    assert drawn.count(">100<") >= 6


def test_a_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    files = llmbar(tmp_path, [("1", "1"), ("1", "2"), ("2", "2")])
    plot = tmp_path / "judges.svg"
    told = call(tmp_path, *files, "--plot", plot)
    assert told.exit_code == 0, told.stderr
    assert plot.read_text().startswith("<?xml")


def test_the_name_of_a_plot_is_checked_first(tmp_path):
    assert "must end in .svg" in refusal(tmp_path, "missing.json", "--plot", tmp_path / "a.gif")


def test_a_source_that_is_not_there(tmp_path):
    assert "nothing: neither a file nor a run of" in refusal(tmp_path, "nothing")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"a": 1}, "line 2: has no field 'output_1', unlike the first row"),
        (alpaca("gpt", 3), "line 2: 'preference' must be between 1 (the first) and 2 (the second)"),
        (alpaca("gpt", "x"), 'but is "x"'),
        (alpaca("gpt", 1, first=None), "line 2: 'output_1' must be a text, but is null"),
    ],
)
def test_a_bad_row_is_said_with_its_place(tmp_path, row, said):
    path = write(tmp_path / "a.jsonl", [alpaca("gpt", 1), row])
    told = refusal(tmp_path, path)
    assert said in told
    assert str(path) in told.replace("\n", "")


def test_a_file_of_another_kind(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": "x", "answer": "y"}])
    assert "its fields match no format of judgments" in refusal(tmp_path, path)


def test_a_file_without_judgments(tmp_path):
    _, texts = llmbar(tmp_path, [("1", "1")])
    assert "no judgments of two different outputs" in refusal(tmp_path, texts)


def test_a_csv_row_that_is_too_short(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("subset,llm\nx\n")
    assert "line 2: the row has 1 columns and the header 2" in refusal(tmp_path, path)


# published data


MEASURED = (
    ("mtbench_human.jsonl", "mtbench_gpt4_pair.jsonl"),
    ("pandalm.jsonl",),
    ("pandalm.jsonl", "--kappas"),
    (
        "mtbench_human.jsonl",
        "mtbench_gpt4_pair.jsonl",
        "mtbench_question.jsonl",
        *("--by", "category", "--model", "gpt-4"),
    ),
    (
        "llmbar_judge_winners.csv",
        "llmbar_LLMBar__Natural.json",
        "llmbar_LLMBar__Adversarial__Neighbor.json",
    ),
)
BLOCK = re.compile(
    r"^```text\n\$ lpfloop judge-check ([^\n]+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def documented(root):
    """Return the lines of the guide's measured tables, by the files they were measured on."""
    text = (root / "docs" / "judge-check.md").read_text().replace("\\\n", "")
    found = {tuple(names.split()): lines for names, lines in BLOCK.findall(text)}
    return {names: [line.strip() for line in lines.splitlines()] for names, lines in found.items()}


@pytest.mark.parametrize("names", MEASURED)
def test_the_guides_figures_are_those_of_published_data(root, shared_data, tmp_path, names):
    told = call(tmp_path, *(shared_data / name if "." in name else name for name in names))
    assert told.exit_code == 0, told.stderr
    printed = [line.strip() for line in told.stdout.splitlines()]
    shown = [line for line in documented(root)[names] if line != "..."]
    assert [line for line in shown if line not in printed] == []


def test_gpt_4_agrees_with_people_on_mt_bench_as_was_published(shared_data, tmp_path):
    files = [shared_data / name for name in MEASURED[0]]
    found = measured(tmp_path, *files, name="gpt4_pair")
    # Zheng et al. 2023: 85 % where neither calls it a tie; half of their votes are here.
    assert found.decided.value == pytest.approx(0.85, abs=0.04)
