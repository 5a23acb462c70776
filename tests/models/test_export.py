"""TRL's trainers accept lpfloop's exports in TRL's formats."""

import json

import pytest
import trl
from datasets import load_dataset
from rows import DEMONSTRATION, PAIR
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.records import Demonstration, Pair

pytestmark = pytest.mark.model
ROWS = {Pair: [PAIR], Demonstration: [DEMONSTRATION]}


def test_trl_trainers_take_an_export(tiny_policy, tiny_reward, tmp_path, subtests):
    store = RunWriter(Journal.create(tmp_path / "lake" / "runs" / "a", {"config": json.dumps({})}))
    store.journal.plan(1, "made", "identity", lambda: ["0" * 64])
    store.commit("0" * 64, ROWS, {})
    store.close()
    for kind in ("DPO", "SFT", "Reward", "KTO"):
        with subtests.test(kind=kind):
            table = "demonstrations" if kind == "SFT" else "pairs"
            target = tmp_path / kind
            form = f"trl-{kind.lower()}"
            lake = tmp_path / "lake"
            export_table(Export(lake=lake, name="a", table=table, form=form, target=target))
            found = load_dataset(str(target), split="train", cache_dir=str(tmp_path / "cache"))
            rated = kind == "Reward"
            loading = AutoModelForSequenceClassification if rated else AutoModelForCausalLM
            arguments = getattr(trl, f"{kind}Config")(
                output_dir=str(tmp_path / "out"),
                use_cpu=True,
                bf16=False,
                report_to="none",
                max_length=64,
            )
            made = getattr(trl, f"{kind}Trainer")(
                model=loading.from_pretrained(tiny_reward if rated else tiny_policy),
                args=arguments,
                train_dataset=found,
                processing_class=AutoTokenizer.from_pretrained(tiny_policy),
            )
            assert next(iter(made.get_train_dataloader()))["input_ids"].numel()
