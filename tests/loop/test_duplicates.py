"""Copies, near copies and contamination: counted as they are, noted once, and never in the way."""

import json
import random
from dataclasses import replace

import polars as pl
import pytest
from commands import call
from crashing import RUN, loop, small_config, stand_ins, write_prompts
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import candidates, commit, prompts

from lpfloop.loop.data.contamination import overlaps
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.data.resemblance import GRAM, MINIMA, alike, signatures, similarity
from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.loop.lake.search.duplicates import duplicates, noted, worst
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

LONG = "the train leaves the station at nine and arrives in the other town before it is noon"
OTHER = "she sells the seven small shells that her sister had found on the shore last summer"


def texts(*rows):
    return pl.DataFrame(rows, schema=["id", "group", "text"], orient="row")


def grams(words):
    if len(words) < GRAM:
        return {tuple(words)} if words else set()
    return {tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)}


def jaccard(one, two):
    return len(one & two) / len(one | two)


WORDS = st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=40)


@settings(max_examples=60)
@given(WORDS, WORDS, st.integers(0, 40))
def test_the_estimate_is_near_the_exact_jaccard(first, second, shared):
    one, two = first, first[:shared] + second
    found = signatures(pl.Series([" ".join(one), ", ".join(two).upper()]))
    (estimate,) = similarity(found, pl.Series([0]), pl.Series([1]))
    exact = jaccard(grams(one), grams(two))
    # Five standard deviations, and an allowance for the smallest sets.
    assert abs(estimate - exact) <= 5 * (0.25 / MINIMA) ** 0.5 + 1e-9
    if exact in (0, 1):
        assert estimate == pytest.approx(exact, abs=0.05)


def test_the_estimate_has_no_bias():
    words = [f"w{n}" for n in range(120)]
    pairs = [(" ".join(words[k:100]), " ".join(words[k + 10 : 110])) for k in range(10)]
    found = signatures(pl.Series([text for pair in pairs for text in pair]))
    rows = pl.Series(range(0, 20, 2))
    exact = [jaccard(grams(a.split()), grams(b.split())) for a, b in pairs]
    assert similarity(found, rows, rows + 1).mean() == pytest.approx(sum(exact) / 10, abs=0.06)


def test_copies_differ_in_white_space_alone():
    found = alike(
        [
            texts(("a1", "a", "so  be\nit "), ("a2", "a", "so be it"), ("a3", "a", "So be it")),
            texts(("b1", "b", "so be\tit"), ("b2", "b", ""), ("b3", "b", "  ")),
        ]
    )
    assert found.copies_within == 2
    assert found.copies_across == 3
    assert found.within["row"].to_list() == [1, 2]
    assert set(found.across["row"]) == {0, 1, 2, 3}


def test_near_copies_are_found_within_a_prompt_and_across():
    changed = LONG.replace("noon", "night")
    found = alike(
        [texts(("a1", "a", LONG), ("a2", "a", changed + "."), ("b1", "b", LONG), ("c", "c", OTHER))]
    )
    assert found.within["row"].to_list() == [1]
    assert found.within["other"].to_list() == [0]
    assert found.within["similarity"][0] > 0.8
    assert set(found.across["row"]) == {0, 1, 2}


def test_texts_without_spaces_are_compared_by_their_characters():
    text = "列車は九時に駅を出て正午前に町に着きます"
    found = alike(
        [texts(("a", "a", text), ("b", "b", text.replace("正午", "正午の")), ("c", "c", "駅"))]
    )
    near = alike([texts(("a", "a", text), ("b", "b", text + "か"))])
    assert set(near.across["row"]) == {0, 1}
    assert found.texts.height == 3


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.text("aB \n\t.é京\U0001f600", max_size=9)), max_size=8
    )
)
def test_any_texts_are_counted(rows):
    frame = texts(*((str(n), group, text) for n, (group, text) in enumerate(rows)))
    frame = frame.cast(pl.String)
    found = alike([frame])
    flat = [(group, " ".join(text.split())) for group, text in rows]
    assert found.copies_within == len(flat) - len(set(flat))


def test_a_held_out_prompt_in_train_is_found_by_its_words():
    long = f"{LONG} {OTHER}"
    train = asked(("t1", None, long), ("t2", None, "How many?"))
    held_out = asked(
        ("same", None, long.upper()),
        ("short", None, "how many"),
        ("piece", None, f"Well, {LONG}"),
        ("new", None, "nothing of that kind at all"),
    )
    found = {row["id"]: row for row in overlaps(train, held_out).to_dicts()}
    assert set(found) == {"same", "short", "piece"}
    assert (found["same"]["share"], found["same"]["n"], found["same"]["other"]) == (1, 13, "t1")
    assert (found["short"]["share"], found["short"]["other"]) == (1, "t2")
    assert 0.5 < found["piece"]["share"] < 1


def asked(*rows):
    schema = dict.fromkeys(("id", "family", "text"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")


def ride(*numbers):
    return "There are {} people on the bus. {} get off and {} get on. How many ride on?".format(
        *numbers
    )


def test_a_template_is_no_overlap_of_its_family_but_a_copy_is():
    train = [("t" + str(n), "bus", ride(n + 10, n % 7, n % 5)) for n in range(40)]
    new, copy, turned = ride(11, 2, 1), ride(12, 2, 2), ride(15, 0, 5)
    held_out = [("new", "bus", new), ("turned", "bus", turned), ("copy", "bus", copy)]
    found = overlaps(asked(*train), asked(*held_out)).to_dicts()
    assert [(row["id"], row["other"], row["share"]) for row in found] == [("copy", "t2", 1.0)]
    unknown = [(name, None, text) for name, _, text in held_out]
    assert len(overlaps(asked(*train), asked(*unknown))) == 3
    elsewhere = [*train, ("x", None, new), ("y", "sums", f"Sum up! {turned}")]
    found = overlaps(asked(*elsewhere), asked(*held_out)).to_dicts()
    assert {(row["id"], row["other"]) for row in found} >= {("new", "x"), ("turned", "y")}


def test_what_is_nothing_but_its_template_is_compared_as_it_is():
    said = "Who are you, and what do you do all day?"
    train = asked(*((f"t{n}", "who", said) for n in range(20)))
    held_out = asked(("copy", "who", said), ("new", "who", said.replace("day", "night")))
    assert overlaps(train, held_out)["id"].to_list() == ["copy"]


def test_a_long_prompt_of_a_family_may_be_copied_in_part():
    rng = random.Random(1)
    words = [f"word{n}" for n in range(900)]
    told = [" ".join(rng.sample(words, 60)) for _ in range(30)]
    train = asked(*((f"t{n}", "essays", f"Sum this up: {text}") for n, text in enumerate(told)))
    piece = " ".join(told[3].split()[10:40])
    held_out = asked(("piece", "essays", f"Sum this up: {piece}"), ("new", "essays", told[4][::-1]))
    found = overlaps(train, held_out).to_dicts()
    assert [(row["id"], row["other"]) for row in found] == [("piece", "t3")]


def test_of_the_tiny_world_copies_alone_are_found(tmp_path):
    prompts = tiny_prompts()
    copied = [prompt for prompt in prompts if prompt.split != "train"][::20]
    copies = [replace(p, prompt_id=f"{p.prompt_id}-copy", split="train") for p in copied]
    found = counted(tmp_path, [*prompts, *copies])
    assert (found["held_out"], found["dev"], found["dev_in_held_out"]) == (660, 504, 0)
    assert found["overlapping"] == sum(prompt.split == "held-out" for prompt in copied)
    assert found["dev_overlapping"] == sum(prompt.split == "dev" for prompt in copied)


def counted(lake, asked):
    commit(lake, [("prompts", asked)])
    reader = open_run(lake, "a")
    (found,) = duplicates(reader, None).to_dicts()
    reader.close()
    return found


@pytest.fixture
def lake(tmp_path):
    train = prompts([LONG, OTHER])
    units = [
        ("prompts", [*train, *prompts([LONG], split="held-out"), *prompts([OTHER], split="dev")]),
        ("sample", candidates(train[0].prompt_id, ["Nine.", "Nine.", LONG, f"{LONG}."])),
        ("refine", candidates(train[1].prompt_id, ["Nine."])),
        ("sample2", candidates(train[0].prompt_id, ["Ten."], iteration=2)),
    ]
    commit(tmp_path / "lake", units)
    return tmp_path / "lake"


def test_a_run_is_counted_iteration_by_iteration(lake):
    reader = open_run(lake, "a")
    first, second, asked = duplicates(reader, None).to_dicts()
    reader.close()
    assert (first["iteration"], first["rows"], second["rows"]) == (1, 5, 1)
    assert (first["copies_within"], first["copies_across"]) == (1, 3)
    assert (first["near_within"], first["near_across"]) == (2, 3)
    assert (asked["what"], asked["rows"], asked["copies_across"]) == ("prompts", 4, 4)
    assert (asked["held_out"], asked["overlapping"]) == (1, 1)
    assert (asked["dev"], asked["dev_overlapping"], asked["dev_in_held_out"]) == (1, 1, 0)


def test_the_worst_are_listed_with_their_ids(lake):
    reader = open_run(lake, "a")
    found = worst(reader, 1, 5).to_dicts()
    reader.close()
    kinds = {(row["what"], row["kind"]) for row in found}
    assert kinds == {
        ("candidates", "copies"),
        ("candidates", "near"),
        ("prompts", "copies"),
        ("held-out prompts in train", "overlap"),
        ("dev prompts in train", "overlap"),
    }
    copies = next(row for row in found if row["kind"] == "copies")
    assert (copies["times"], copies["id"]) == (3, "cand-prompt-train-math-0-1-0")


def test_the_command_prints_rows(lake):
    code, stdout, stderr = call(lake, "lake", "duplicates", "a", "--iteration", "1", "--json")
    assert code == 0, stderr
    assert [row["what"] for row in json.loads(stdout)] == ["candidates", "prompts"]
    assert call(lake, "lake", "duplicates", "absent")[0] == 2


def test_a_run_notes_each_iteration_once_and_keeps_its_digest(tmp_path, monkeypatch):
    plain, noting = tmp_path / "plain", tmp_path / "noting"
    for lake in (plain, noting):
        lake.mkdir()
        with stand_ins(lake), monkeypatch.context() as patch:
            if lake is plain:
                patch.setattr("lpfloop.loop.daemon.loop.note_duplicates", lambda *_: None)
            config = small_config(write_prompts(tmp_path))
            loop(lake, config=config)
            loop(lake, config=config)
    assert run_digest(run_folder(plain, RUN)) == run_digest(run_folder(noting, RUN))
    reader = Reader(run_folder(noting, RUN))
    assert len(reader.events("duplicates")) == 3
    found = noted(reader)
    reader.close()
    assert found[0]["prompts"]["rows"] == 8
    assert found[1]["candidates"]["rows"] == found[1]["candidates"]["sampled"] == 12
    run = open_run(noting, RUN)
    (told,) = status(run, 1)["iterations"]
    run.close()
    assert told["duplicates"]["candidates"] == found[1]["candidates"]


def test_a_large_iteration_is_sampled_by_whole_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("lpfloop.loop.lake.search.duplicates.SAMPLE", 6)
    with stand_ins(tmp_path):
        loop(tmp_path, config=small_config(write_prompts(tmp_path)))
    reader = Reader(run_folder(tmp_path, RUN))
    found = noted(reader)[1]["candidates"]
    reader.close()
    assert (found["rows"], found["sampled"]) == (12, 6)
