"""The environment of model processes: garbage collection while they import and load."""

import gc

import pytest

from lpfloop.policies.workers.environment import without_garbage_collection


def test_loading_without_garbage_collection():
    frozen = gc.get_freeze_count()
    with without_garbage_collection():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    gc.unfreeze()


def test_failed_load_enables_garbage_collection():
    with pytest.raises(ImportError), without_garbage_collection():
        raise ImportError
    assert gc.isenabled()
    gc.unfreeze()
