"""Reference outputs from a file: one a prompt; other files are refused."""

import pytest

from lpfloop.configs.schema import ConfigError
from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.assess import load_oracle
from lpfloop.loop.evaluation.reference_outputs import read_outputs


def test_outputs_that_are_refused(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"instruction": "a", "output": "b"}\n{"instruction": "a", "output": "c"}\n')
    with pytest.raises(InputError, match="line 2"):
        read_outputs(path)
    path.write_text('{"instruction": "a"}\n')
    with pytest.raises(InputError, match="line 1: 'output'"):
        read_outputs(path)


def test_oracles_that_are_not_there():
    for place in ("nothing", "scripts:nothing", "math:pi", ":"):
        with pytest.raises(ConfigError, match="oracle"):
            load_oracle(place)
