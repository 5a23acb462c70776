"""A run records once how its prompts overlap, without changing its digest."""

from world import RUN, loop, small_config, stand_ins, write_prompts

from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder


def test_notes_keep_the_digest(tmp_path, monkeypatch):
    plain, noting = tmp_path / "plain", tmp_path / "noting"
    for lake in (plain, noting):
        lake.mkdir()
        with stand_ins(lake), monkeypatch.context() as patch:
            if lake is plain:
                patch.setattr("lpfloop.loop.daemon.iterations.note_overlap", lambda *_: None)
            config = small_config(write_prompts(tmp_path))
            loop(lake, config=config)
            loop(lake, config=config)
    assert run_digest(run_folder(plain, RUN)) == run_digest(run_folder(noting, RUN))
    reader = Reader(run_folder(noting, RUN))
    (event,) = reader.events("overlap")
    reader.close()
    run = open_run(noting, RUN)
    found = status(run)["overlap"]
    run.close()
    assert found == {name: value for name, value in event.items() if name != "seen"}
    assert (found["held_out"], found["overlapping"], found["eval_sets"]) == (2, 0, {})
