from pathlib import Path

from lpfloop.loop.run.served import folder_of


def test_home_is_expanded():
    assert folder_of("~/models/mine") == str(Path.home() / "models" / "mine")
