"""A run records the copies among its texts once an iteration, without changing its digest."""

from world import RUN, loop, small_config, stand_ins, write_prompts

from lpfloop.loop.lake.query.run_status import status
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.lake.search.duplicates import latest_records
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder


def test_notes_keep_the_digest(tmp_path, monkeypatch):
    plain, noting = tmp_path / "plain", tmp_path / "noting"
    for lake in (plain, noting):
        lake.mkdir()
        with stand_ins(lake), monkeypatch.context() as patch:
            if lake is plain:
                patch.setattr("lpfloop.loop.daemon.iterations.note_duplicates", lambda *_: None)
            config = small_config(write_prompts(tmp_path))
            loop(lake, config=config)
            loop(lake, config=config)
    assert run_digest(run_folder(plain, RUN)) == run_digest(run_folder(noting, RUN))
    reader = Reader(run_folder(noting, RUN))
    assert len(reader.events("duplicates")) == 3
    found = latest_records(reader)
    reader.close()
    assert found[0]["prompts"]["rows"] == 8
    assert found[1]["candidates"]["rows"] == found[1]["candidates"]["sampled"] == 12
    run = open_run(noting, RUN)
    (told,) = status(run, 1)["iterations"]
    run.close()
    assert told["duplicates"]["candidates"] == found[1]["candidates"]
