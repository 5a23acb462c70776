from pathlib import Path

from lpfloop.loop.run.hub_names import folder_of


def test_home_is_expanded():
    assert folder_of("~/models/mine") == str(Path.home() / "models" / "mine")
