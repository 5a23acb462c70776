"""Vectors of texts from a model's hidden states."""

from array import array

import pytest

from lpfloop.configs.schema import EmbedderConfig
from lpfloop.policies.workers.open import open_embedder

pytestmark = pytest.mark.model


def test_hidden_states(tiny_policy, tmp_path, monkeypatch):
    monkeypatch.setattr(EmbedderConfig, "batch_size", 2)
    config = EmbedderConfig(kind="policy", max_tokens=16)
    embedder = open_embedder(str(tiny_policy), config, log=tmp_path / "log")
    texts = ["Name the capital.", "", "How many apples are left?", "x " * 400, "Name the capital."]
    try:
        vectors = [array("f", vector) for vector in embedder.embed(texts)]
        (alone,) = embedder.embed([texts[0]])
    finally:
        embedder.close()
    assert {len(vector) for vector in vectors} == {128}
    assert list(vectors[0]) == pytest.approx(list(vectors[4]), abs=1e-4)
    assert list(vectors[0]) == pytest.approx(list(array("f", alone)), abs=1e-4)
    assert list(vectors[0]) != pytest.approx(list(vectors[2]), abs=1e-2)
