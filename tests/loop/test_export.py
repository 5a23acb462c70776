"""Exports: read back by the target's own loader, whole or not there, and the same again."""

import csv
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loaders import loader
from typer.testing import CliRunner

from examples import CANDIDATE, CRITIQUE, DEMONSTRATION, PAIR, PROMPT, REWARD
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.file_row import as_row
from lpfloop.loop.data.rating_scale import SCALES
from lpfloop.loop.lake.exports import (
    candidate_groups as grouping,
)
from lpfloop.loop.lake.exports import (
    export as exporting,
)
from lpfloop.loop.lake.exports import (
    inspect_logs,
)
from lpfloop.loop.lake.exports.candidate_groups import Group, Judged
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.exports.feedback_rows import ultrafeedback
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.imports.import_formats import FORMATS
from lpfloop.loop.lake.imports.imported_rows import Maker
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.outputs import open_sink
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    Prompt,
    Reward,
)
from lpfloop.stores.schemas import plain

RUN = "made"


def system(text):
    return (Message(role="system", content="Be brief."), Message(role="user", content=text))


PROMPTS = [
    PROMPT,
    replace(PROMPT, prompt_id="prompt-2", messages=system("Hi?"), task="general", reference=None),
    replace(PROMPT, prompt_id="prompt-3", split="held-out"),
]
CANDIDATES = [
    CANDIDATE,
    replace(CANDIDATE, candidate_id="cand-2", text="6", kind="refinement", parent_id="cand-1"),
    replace(CANDIDATE, candidate_id="cand-3", prompt_id="prompt-2", text="Ho."),
]
CRITIQUES = [
    CRITIQUE,
    replace(CRITIQUE, critique_id="crit-3", candidate_id="cand-3", prompt_id="prompt-2"),
    replace(CRITIQUE, critique_id="crit-h", critic="human:ada", text="seen by me"),
]
REWARDS = [
    replace(REWARD, score=0.5, status="scored"),
    replace(REWARD, candidate_id="cand-3", prompt_id="prompt-2"),
]
PAIRS = [PAIR, replace(PAIR, pair_id="pair-2", prompt=system("Hi?"), prompt_id="prompt-2")]
DEMONSTRATIONS = [DEMONSTRATION, replace(DEMONSTRATION, demonstration_id="demo-2")]
ROWS = {
    Prompt: PROMPTS,
    Candidate: CANDIDATES,
    Critique: CRITIQUES,
    Reward: REWARDS,
    Pair: PAIRS,
    Demonstration: DEMONSTRATIONS,
}
CONFIG = {"critic": {"aspects": "tiny"}, "recipe": {"name": "rlrf", "top_k": 1}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with one run that has a few rows of each table, all in iteration 1."""
    folder = tmp_path_factory.mktemp("export") / "lake"
    store = RunWriter(Journal.create(folder / "runs" / RUN, {"config": json.dumps(CONFIG)}))
    store.journal.plan(1, "made", "identity", lambda: ["0" * 64])
    store.commit("0" * 64, ROWS, {})
    store.flush()
    store.close()
    return folder


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def export(lake, tmp_path):
    def write(table, form, **options):
        target = tmp_path / f"{form}-{table}"
        export_table(Export(lake=lake, name=RUN, table=table, form=form, target=target, **options))
        return target

    return write


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


# read back by the trainers' own loaders


def dataset(folder):
    """Load a folder as `datasets.load_dataset` does, by the configuration in its card."""
    datasets = pytest.importorskip("datasets")
    cache = str(folder.parent / "cache")
    return datasets.load_dataset(str(folder), split="train", cache_dir=cache)


@pytest.fixture(scope="module")
def tokenizer(tiny_policy):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(tiny_policy)


@pytest.mark.model
@pytest.mark.parametrize(
    ("table", "form", "columns"),
    [
        ("pairs", "trl-dpo", {"prompt", "chosen", "rejected"}),
        ("pairs", "trl-reward", {"chosen", "rejected"}),
        ("pairs", "trl-kto", {"prompt", "completion", "label"}),
        ("demonstrations", "trl-sft", {"prompt", "completion"}),
    ],
)
def test_trl_applies_its_chat_template_to_an_export(export, tokenizer, table, form, columns):
    trl = pytest.importorskip("trl.data_utils")
    found = dataset(export(table, form))
    assert columns <= set(found.column_names)
    row = {name: found[0][name] for name in columns}
    assert trl.is_conversational(row)
    rendered = trl.apply_chat_template(row, tokenizer)
    assert all(isinstance(rendered[name], str) for name in columns - {"label"})
    assert "5" in rendered.get("completion", "") + rendered.get("chosen", "")


@pytest.mark.model
@pytest.mark.parametrize("form", ["trl-dpo", "trl-sft", "trl-reward", "trl-kto"])
def test_trls_trainers_take_an_export(export, tokenizer, tiny_policy, tiny_reward, tmp_path, form):
    trl = pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    table = "demonstrations" if form == "trl-sft" else "pairs"
    kind = {"trl-dpo": "DPO", "trl-sft": "SFT", "trl-reward": "Reward", "trl-kto": "KTO"}[form]
    config, trainer = getattr(trl, f"{kind}Config"), getattr(trl, f"{kind}Trainer")
    rated = form == "trl-reward"
    loading = AutoModelForSequenceClassification if rated else AutoModelForCausalLM
    arguments = config(
        output_dir=str(tmp_path / "out"), use_cpu=True, bf16=False, report_to="none", max_length=64
    )
    made = trainer(
        model=loading.from_pretrained(tiny_reward if rated else tiny_policy),
        args=arguments,
        train_dataset=dataset(export(table, form)),
        processing_class=tokenizer,
    )
    batch = next(iter(made.get_train_dataloader()))
    assert len(batch["input_ids"]) >= 2


def test_llamafactory_takes_its_export(export):
    """LLaMA-Factory 0.9.5, src/llamafactory/data/{parser,converter}.py: SharegptDatasetConverter.

    With `ranking` the conversation has an odd number of turns after the system's, and `chosen` and
    `rejected` are single objects with the role of the assistant.
    """
    folder = export("pairs", "llamafactory")
    (info,) = json.loads((folder / "dataset_info.json").read_text()).values()
    assert info["ranking"] is True
    rows = lines(folder / info["file_name"])
    tags = info["tags"]
    for row in rows:
        turns = row[info["columns"]["messages"]]
        spoken = [t for t in turns if t[tags["role_tag"]] != tags["system_tag"]]
        assert [t["from"] for t in spoken] == ["human"]
        assert row["chosen"]["from"] == row["rejected"]["from"] == tags["assistant_tag"]
    assert lines(export("demonstrations", "llamafactory") / "train.jsonl")[0]["conversations"] == [
        {"from": "human", "value": "2 + 3?"},
        {"from": "gpt", "value": "5"},
    ]


def test_llamafactorys_own_converter_reads_its_export(export):
    converter = loader("llamafactory.data.converter")
    parser = loader("llamafactory.data.parser")
    folder = export("pairs", "llamafactory")
    (info,) = json.loads((folder / "dataset_info.json").read_text()).values()
    attributes = parser.DatasetAttr("file", info["file_name"])
    attributes.join(info)
    convert = converter.SharegptDatasetConverter(attributes, None)
    for row, pair in zip(lines(folder / "train.jsonl"), PAIRS, strict=True):
        read = convert(row)
        assert read["_prompt"][-1] == {"role": "user", "content": pair.prompt[-1].content}
        assert [turn["content"] for turn in read["_response"]] == ["5", "6"]
        assert read["_system"] == ("Be brief." if len(pair.prompt) > 1 else "")


def test_axolotl_takes_its_export(export):
    """axolotl 0.19, axolotl/prompt_strategies/dpo/chat_template.py: `default`.

    `messages` is a list of messages, `chosen` and `rejected` are single ones; for SFT
    `chat_template` reads `messages` whole.
    """
    folder = export("pairs", "axolotl")
    config = yaml.safe_load((folder / "axolotl.yaml").read_text())
    assert config["rl"] == "dpo"
    row = lines(folder / "train.jsonl")[0]
    (entry,) = config["datasets"]
    assert row[entry["field_messages"]] == plain(PAIR.prompt)
    assert row[entry["field_chosen"]] == plain(PAIR.chosen[0])
    assert row[entry["field_rejected"]] == plain(PAIR.rejected[0])
    row = lines(export("demonstrations", "axolotl") / "train.jsonl")[0]
    assert row["messages"] == plain((*DEMONSTRATION.prompt, *DEMONSTRATION.completion))


@pytest.mark.model
def test_axolotls_own_strategy_reads_its_export(export, tokenizer):
    strategy = loader("axolotl.prompt_strategies.dpo.chat_template")
    folder = export("pairs", "axolotl")
    config = yaml.safe_load((folder / "axolotl.yaml").read_text())
    config["chat_template"] = "tokenizer_default"
    transform, _ = strategy.default(config)
    read = transform(lines(folder / "train.jsonl")[0], tokenizer=tokenizer)
    assert "2 + 3?" in read["prompt"]
    assert (read["chosen"][0], read["rejected"][0]) == ("5", "6")


def test_openrlhf_takes_its_export(export):
    """OpenRLHF 0.11.2, openrlhf/datasets/reward_dataset.py and sft_dataset.py: `preprocess_data`.

    With `apply_chat_template` and no `prompt_key`, chosen and rejected are whole conversations that
    share all but the last turn; SFT adds `data[output_key]` to `data[input_key]`.
    """
    for row in lines(export("pairs", "openrlhf") / "train.jsonl"):
        assert row["chosen"][:-1] == row["rejected"][:-1]
        assert row["chosen"][-1]["role"] == row["rejected"][-1]["role"] == "assistant"
    row = lines(export("demonstrations", "openrlhf") / "train.jsonl")[0]
    assert [turn["role"] for turn in row["prompt"] + row["completion"]] == ["user", "assistant"]


@pytest.mark.model
def test_openrlhfs_own_preprocessing_reads_its_export(export, tokenizer):
    bare = ("openrlhf.utils", "openrlhf.utils.math_utils")
    rewards = loader("openrlhf.datasets.reward_dataset", *bare)
    prompts = loader("openrlhf.datasets.sft_dataset", *bare)
    template = tokenizer.apply_chat_template
    row = lines(export("pairs", "openrlhf") / "train.jsonl")[0]
    prompt, chosen, rejected, _ = rewards.preprocess_data(
        row, apply_chat_template=template, is_dpo=True
    )
    assert "2 + 3?" in prompt
    assert (chosen[0], rejected[0]) == ("5", "6")
    row = lines(export("demonstrations", "openrlhf") / "train.jsonl")[0]
    prompt, completion = prompts.preprocess_data(
        row, input_key="prompt", output_key="completion", apply_chat_template=template
    )
    assert "2 + 3?" in prompt
    assert completion[0] == "5"


def test_verl_takes_its_export(export):
    """verl 0.9.1, verl/utils/dataset/rl_dataset.py (RLHFDataset) and multiturn_sft_dataset.py.

    Parquet with `prompt` as messages, `data_source`, and `reward_model.ground_truth` for
    verl/utils/reward_score; `extra_info.index` names the row; SFT reads `messages`.
    """
    rows = pq.read_table(export("prompts", "verl") / "train.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == ["prompt-1", "prompt-2"]
    assert rows[0] == {
        "data_source": "test",
        "prompt": [{"role": "user", "content": "2 + 3?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "5"},
        "extra_info": {"split": "train", "index": "prompt-1"},
    }
    rows = pq.read_table(export("demonstrations", "verl") / "train.parquet").to_pylist()
    assert [turn["role"] for turn in rows[0]["messages"]] == ["user", "assistant"]


def test_inspect_reads_its_export(export):
    log = pytest.importorskip("inspect_ai.log")
    folder = export("candidates", "inspect")
    (found,) = log.list_eval_logs(str(folder))
    read = log.read_eval_log(found.name)
    assert read.status == "success"
    first, second, third = sorted(read.samples, key=lambda s: (s.id, s.epoch))
    assert [(s.id, s.epoch) for s in (first, second, third)] == [
        ("prompt-1", 1),
        ("prompt-1", 2),
        ("prompt-2", 1),
    ]
    scores = {name: score.value for name, score in first.scores.items()}
    assert scores == {
        "Logical Correctness": 1,
        "Readability": "N",
        "Logical Correctness (human:ada)": 1,
        "Readability (human:ada)": "N",
        "reward": 0.5,
    }
    assert first.scores["Logical Correctness"].explanation
    assert [m.text for m in first.messages] == ["2 + 3?", "5"]
    assert not second.scores
    assert third.target == ""
    means = {score.name: score.metrics for score in read.results.scores}
    assert means["Logical Correctness"]["mean"].value == 1
    assert means["Readability"] == {}


def test_a_large_iteration_becomes_several_logs(export, monkeypatch):
    log = pytest.importorskip("inspect_ai.log")
    monkeypatch.setattr(inspect_logs, "SAMPLES_A_LOG", 2)
    found = log.list_eval_logs(str(export("candidates", "inspect")))
    assert sorted(len(log.read_eval_log(f.name).samples) for f in found) == [1, 2]


# plain tables


def test_every_table_goes_out_as_it_is(export):
    target = export("pairs", "parquet")
    assert pq.read_table(target / "train.parquet").to_pylist() == plain(PAIRS)
    assert lines(export("critiques", "jsonl") / "train.jsonl") == plain(CRITIQUES)
    with (export("candidates", "csv") / "train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["5", "6", "Ho."]
    with (export("critiques", "csv") / "train.csv").open(newline="") as file:
        assert json.loads(next(csv.DictReader(file))["aspects"]) == plain(CRITIQUE.aspects)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ('=HYPERLINK("http://evil.example/","x")', '\'=HYPERLINK("http://evil.example/","x")'),
        ("@SUM(1)", "'@SUM(1)"),
        ("+1+1", "'+1+1"),
        ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
        ("- an item", "'- an item"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("＝1", "'＝1"),  # noqa: RUF001
        ("-5", "-5"),
        ("+3.25", "+3.25"),
        ("-1.5e-7", "-1.5e-7"),
        ("5 = 5", "5 = 5"),
        ("", ""),
    ],
)
def test_a_cell_of_csv_is_no_formula(tmp_path, text, cell):
    sink = open_sink(tmp_path / "a.csv", pa.schema([("text", pa.string()), ("n", pa.int64())]))
    sink.put({"text": text, "n": -3})
    sink.put({"text": None, "n": None})
    sink.close()
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["text", "n"], [cell, "-3"], ["", ""]]


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_datasets_loads_a_folder_by_its_card(export, form):
    found = dataset(export("pairs", form))
    assert found["pair_id"] == ["pair-1", "pair-2"]


def test_only_one_iteration_goes_out_if_asked(export):
    assert len(lines(export("pairs", "jsonl", iteration=1) / "train.jsonl")) == 2


# the card


def test_the_card_says_what_lies_there_and_where_it_comes_from(export):
    text = (export("pairs", "trl-dpo", license="mit") / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    card = yaml.safe_load(header)
    assert card["license"] == "mit"
    assert card["tags"] == ["lpfloop", "trl", "preference", "dpo"]
    assert card["configs"][0]["data_files"] == [{"split": "train", "path": "train.parquet"}]
    for said in (
        "| train.parquet | 2 |",
        "| math | train | 1 |",
        "| sample | tiny | m0 | 2 |",
        "| human:ada | scored | 1 |",
        "Is every claim supported?",
        "| pairs | success_vs_failure | 2 |",
        '"top_k": 1',
        "| test | 3 |",
        "Digest of the run: `",
    ):
        assert said in body


def test_the_hub_reads_the_card(export):
    hub = pytest.importorskip("huggingface_hub")
    card = hub.DatasetCard.load(export("pairs", "parquet") / "README.md")
    assert card.data.license == "unknown"
    assert card.data.size_categories == ["n<1K"]


def test_the_same_export_again_is_the_same(export):
    def content(folder):
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    first = content(export("pairs", "trl-dpo"))
    assert content(export("pairs", "trl-dpo", force=True)) == first


# whole or not at all


def test_an_export_that_fails_leaves_nothing(lake, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "card", fail)
    job = Export(lake=lake, name=RUN, table="pairs", form="jsonl", target=tmp_path / "out")
    with pytest.raises(OSError, match="No space"):
        export_table(job)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("critiques", "--as", "trl-dpo"), "takes pairs, not critiques"),
        (("pairs", "--as", "inspect"), "takes candidates, not pairs"),
        (("pairs", "--as", "xml"), "no such form"),
        (("pears", "--as", "csv"), "no such table"),
        (("evaluations", "--as", "csv"), "has no evaluations to export"),
        (("pairs", "--as", "csv", "--iteration", "7"), "no pairs in iteration 7"),
    ],
)
def test_what_does_not_fit_is_refused(lake, tmp_path, arguments, said):
    told = invoke("export", RUN, *arguments, "--output", tmp_path / "out", "--lake", lake)
    assert told.exit_code == Exit.BAD_INPUT
    assert said in told.stderr
    assert list(tmp_path.iterdir()) == []


# round trips


def test_pairs_come_back_from_trls_form(lake, export, tmp_path):
    folder = export("pairs", "trl-dpo")
    import_files(Import(lake=tmp_path / "lake", name="back", files=(folder / "train.parquet",)))
    back = open_run(tmp_path / "lake", "back")
    columns = ["prompt", "chosen", "rejected", "prompt_id"]
    found = back.scan("pairs").select(columns).collect().to_dicts()
    back.close()
    assert found == [{name: plain(getattr(pair, name)) for name in columns} for pair in PAIRS]


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
prompts = st.lists(words.filter(str.strip), min_size=1, max_size=3)
aspects = st.dictionaries(
    words.filter(bool), st.tuples(st.sampled_from([-1, 0, 1, None]), words), max_size=3
)


@given(prompts, words, words, aspects)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_ratings_and_texts_come_back_from_ultrafeedbacks_form(turns, text, said, rated):
    roles = ("user", "assistant", "user")
    messages = tuple(
        Message(role=role, content=turn)
        for role, turn in zip(roles[-len(turns) :], turns, strict=True)
    )
    prompt = replace(PROMPT, messages=messages)
    candidate = replace(CANDIDATE, text=text)
    ratings = tuple(AspectRating(name=n, rating=r, comment=c) for n, (r, c) in rated.items())
    critique = replace(CRITIQUE, aspects=ratings, text=said)
    row = _through_json(_grouped(prompt, candidate, critique))
    back = list(FORMATS["ultrafeedback"].read(as_row(row), _maker()))
    assert next(r.messages for r in back if isinstance(r, Prompt)) == messages
    assert next(r.text for r in back if isinstance(r, Candidate)) == text
    found = next((r for r in back if isinstance(r, Critique)), None)
    if found is not None:
        assert found.aspects == ratings
        again = ultrafeedback(_grouped(prompt, candidate, found))
        assert _through_json(again)["completions"][0] == row["completions"][0]
    else:
        assert (ratings, said) == ((), "")


def _grouped(prompt, candidate, critique):
    judged = Judged(plain(candidate), [plain(critique)], [])
    return Group(plain(prompt), [judged])


def _through_json(group):
    row = ultrafeedback(group) if isinstance(group, Group) else group
    return json.loads(json.dumps(row))


def _maker():
    return Maker(source="back", scale=SCALES["1-5"], task=None)


@given(st.dictionaries(words.filter(bool), st.sampled_from("12345"), min_size=1, max_size=4))
def test_ultrafeedbacks_own_ratings_come_out_as_they_came_in(given_ratings):
    annotations = {n: {"Rating": r, "Rationale": ""} for n, r in given_ratings.items()}
    entry = {"model": "m", "response": "r", "annotations": annotations, "critique": "c"}
    row = {"instruction": "x", "completions": [entry]}
    made = list(FORMATS["ultrafeedback"].read(as_row(row), _maker()))
    prompt, candidate, critique = made
    (back,) = ultrafeedback(_grouped(prompt, candidate, critique))["completions"]
    assert back["annotations"] == annotations
    assert back["critique"] == "c"


# many rows


def test_groups_are_the_same_however_many_candidates_are_held_at_once(lake, monkeypatch):
    run = open_run(lake, RUN)
    at_once = list(grouping.groups(run, None))
    monkeypatch.setattr(grouping, "CANDIDATES_AT_ONCE", 1)
    one_by_one = list(grouping.groups(run, None))
    run.close()
    assert one_by_one == at_once
    assert [len(group.candidates) for group in at_once] == [2, 1]
    assert at_once[0].candidates[0].critique["critic"] == CRITIQUE.critic
