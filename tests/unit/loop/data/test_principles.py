"""Principles from a file are a list of different texts."""

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.data.principles import TEXTS, read_texts, shipped_texts


def test_file_without_principles(subtests, tmp_path):
    for text, message in [
        ("Be kind.", "must be a list of texts"),
        ("- Be kind.\n- Be kind.", "the principle 'Be kind.' appears twice"),
    ]:
        with subtests.test(case=text):
            path = tmp_path / "mine.yaml"
            path.write_text(text)
            with pytest.raises(ConfigError, match=message):
                read_texts(path)


def test_shipped_principles():
    assert sum(len(shipped_texts(aspect)) for aspect in TEXTS.shipped_names()) == 44
    with pytest.raises(ConfigError, match="no principles of 'wit' are shipped"):
        shipped_texts("wit")
