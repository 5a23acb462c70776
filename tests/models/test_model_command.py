"""transformers loads a copy made by `lpfloop model` like any model."""

import pytest
from lakes import published_run
from typer.testing import CliRunner

from lpfloop.loop.cli.app import app

pytestmark = pytest.mark.model


def test_copy_is_loaded_by_transformers(tmp_path, tiny_policy):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    published_run(tmp_path / "lake", tiny_policy)
    words = ["model", "M_1", "--copy", str(tmp_path / "m"), "--lake", str(tmp_path / "lake")]
    assert CliRunner().invoke(app, words).exit_code == 0
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m", local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m", local_files_only=True)
    asked = [{"role": "user", "content": "What is 7 + 5?"}]
    ids = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    drawn = model.generate(ids, do_sample=False, max_new_tokens=40)[0, ids.shape[1] :]
    assert 1 < len(drawn) <= 40
    assert tokenizer.decode(drawn, skip_special_tokens=True).strip()
