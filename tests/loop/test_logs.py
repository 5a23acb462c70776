"""The run's log: one object a line, bounded, without secrets, and never in the way."""

import base64
import hashlib
import json
import logging
import os
import time
from pathlib import Path

import pytest

from lpfloop.configs import secrecy
from lpfloop.configs.load import load_config
from lpfloop.configs.secrecy import (
    Blackout,
    hide,
    hide_environment,
    hide_key,
    hide_secrets_of,
    redacted,
    row_without_keys,
    without_keys,
)
from lpfloop.loop.daemon import logs
from lpfloop.loop.daemon.logs import LogReporter, Tee, bound_logs, logging_to
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.terminal import Unbreakable

KEY = "sk-live-0123456789abcdef"


@pytest.fixture(autouse=True)
def no_secrets_yet(monkeypatch):
    monkeypatch.setattr(secrecy, "_keys", Blackout())
    monkeypatch.setattr(secrecy, "_every", Blackout())


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    return tmp_path


def written(folder):
    return [json.loads(line) for line in (folder / "logs/run.jsonl").read_text().splitlines()]


def test_a_line_is_one_object_with_the_record_in_it(folder):
    with logging_to(folder):
        logging.getLogger("lpfloop.loop").warning(
            "unit %d of %s", 3, "a", extra={"fields": {"n": 1}}
        )
    (line,) = written(folder)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "lpfloop.loop",
        "message": "unit 3 of a",
        "fields": {"n": 1},
    }


HOSTILE = [
    'x\n{"level": "info", "message": "forged"}',
    "\x1b]0;title\x07",
    "\u202egnp",
    "\ud800",
    "\0",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_can_forge_a_line_or_drive_a_terminal(folder, text):
    with logging_to(folder):
        logging.getLogger("lpfloop.x").info("%s", text, extra={"fields": {"said": text}})
    data = (folder / "logs/run.jsonl").read_bytes()
    assert data.count(b"\n") == 1
    assert all(0x20 <= byte < 0x7F for byte in data[:-1])
    assert written(folder)[0]["message"] == text


def test_an_exception_is_kept_with_its_traceback(folder):
    with logging_to(folder):
        try:
            os.close(-1)
        except OSError:
            logging.getLogger("lpfloop.x").exception("it broke")
    assert "Traceback" in written(folder)[0]["message"]


def test_the_log_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    with logging_to(folder):
        for _ in range(500):
            logging.getLogger("lpfloop.x").info("x" * 100)
        logging.getLogger("lpfloop.x").info("y" * 1_000_000)
    files = sorted(path.name for path in (folder / "logs").iterdir())
    assert files == ["run.jsonl", *(f"run.jsonl.{n}" for n in range(1, 6))]
    sizes = [path.stat().st_size for path in (folder / "logs").iterdir()]
    assert sum(sizes) < 6 * 2000 + 2 * logs.LONGEST_MESSAGE


def test_logs_of_children_are_set_aside_when_they_are_long(folder, monkeypatch):
    monkeypatch.setattr(logs, "FILE_BYTES", 100)
    (folder / "logs/engine-1.log").write_text("long" * 100)
    (folder / "logs/train.log").write_text("short")
    for _ in range(2):
        bound_logs(folder)
    assert (folder / "logs/engine-1.log.1").read_text() == "long" * 100
    assert not (folder / "logs/engine-1.log").exists()
    assert (folder / "logs/train.log").read_text() == "short"


def test_a_full_disk_is_no_fault_of_the_run(folder, capfd):
    (folder / "logs/run.jsonl").symlink_to("/dev/full")
    with logging_to(folder):
        logging.getLogger("lpfloop.x").info("lost")
        logging.getLogger("lpfloop.x").info("lost too")
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_goes_away_is_no_fault_of_the_run(folder, capfd):
    with logging_to(folder):
        logging.getLogger("lpfloop.x").info("kept")
        (folder / "logs/run.jsonl").unlink()
        (folder / "logs").rmdir()
        for handler in logging.getLogger("lpfloop").handlers:
            handler.close()
        logging.getLogger("lpfloop.x").info("lost")
    assert capfd.readouterr() == ("", "")


def test_logging_ends_with_the_run(folder):
    before = list(logging.getLogger("lpfloop").handlers)
    with logging_to(folder):
        pass
    assert logging.getLogger("lpfloop").handlers == before


def test_stages_and_notes_are_logged_beside_the_display(folder):
    class Seen(LogReporter):
        notes = ()

        def note(self, text):
            self.notes += (text,)

    seen = Seen()
    tee = Tee([seen, LogReporter()])
    with logging_to(folder):
        tee.begin(1, "sample", planned=4, done=1)
        tee.begin(1, "critique", planned=4, done=0)
        tee.advance(1, "sample", Advance(rows=2, tokens=30))
        tee.advance(1, "critique", Advance(rows=5))
        tee.advance(1, "sample", Advance(rows=1, tokens=12, unscored=1))
        tee.end(1, "sample")
        tee.end(1, "critique")
        tee.note("trained")
    assert seen.notes == ("trained",)
    begin, _, end, other = (line["fields"] for line in written(folder)[:8:2])
    assert begin == {"iteration": 1, "stage": "sample", "planned": 4, "done": 1}
    assert {"stage": "sample", "rows": 3, "tokens": 42, "unscored": 1}.items() <= end.items()
    assert {"stage": "critique", "rows": 5, "tokens": 0}.items() <= other.items()
    assert written(folder)[-1]["message"] == "trained"


# secrets


def forms(secret):
    data = secret.encode()
    yield secret
    yield f"Bearer {secret}!"
    for before in (b"", b"u", b"us", b"user:"):
        yield base64.b64encode(before + data + b" and more").decode()
        yield base64.urlsafe_b64encode(before + data).decode().rstrip("=")


@pytest.mark.parametrize("secret", [KEY, "päss wörd/+&=", "\udcff\udcfe-undecodable-"])
def test_a_secret_is_blacked_out_in_every_form(secret):
    hide(secret)
    assert redacted(f"x{secret}y") == "x[hidden]y"
    if secret.isprintable():
        for text in forms(secret):
            hidden = redacted(f"told: {text} end")
            assert "[hidden]" in hidden
            assert secret not in hidden
            assert base64.b64encode(secret.encode()).decode()[4:-4] not in hidden


def test_other_texts_stay_as_they_are():
    hide(KEY)
    hide("")
    hide("short")
    text = "a short text with sk-live- and a link https://example.org/a@b?c=d"
    assert redacted(text) == text


def test_the_user_of_a_url_is_left_out():
    assert redacted("at https://joe:pw@example.org/v1") == "at https://example.org/v1"


def test_secrets_of_the_environment_are_known_by_their_names(monkeypatch):
    for name in ("LPFLOOP_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD"):
        monkeypatch.setenv(name, f"value-of-{name}")
    monkeypatch.setenv("PLAIN", "value-of-plain")
    monkeypatch.setenv("MAX_TOKENS", "10000000")
    monkeypatch.setenv("KEY_FILE", "/etc/keys/key")
    monkeypatch.setenv("SIGNING_KEY", "/etc/hostname")
    hide_environment()
    for name in ("LPFLOOP_API_KEY", "HF_TOKEN", "my_secret", "DB_PASSWORD"):
        assert redacted(f"value-of-{name}") == "[hidden]"
    for text in ("value-of-plain", "10000000", "/etc/keys/key", "/etc/hostname"):
        assert redacted(text) == text


@pytest.mark.parametrize("name", ["LPFLOOP_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN_2"])
@pytest.mark.parametrize("value", ["/aB3dE5fG7hJ9kL", "73019482655103"])
def test_a_secret_may_look_like_a_path_or_a_number(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    hide_environment()
    assert redacted(f"told {value}!") == "told [hidden]!"


@pytest.mark.parametrize("value", ["", "1", "none", "EMPTY", "1234567"])
def test_a_short_value_takes_no_words_out_of_texts(monkeypatch, value):
    monkeypatch.setenv("LPFLOOP_API_KEY", value)
    hide_environment()
    text = "There is none: 1234567 is EMPTY, and 1 is not."
    assert redacted(text) == without_keys(text) == text


def test_rows_lose_keys_and_no_password(monkeypatch):
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    monkeypatch.setenv("LPFLOOP_API_KEY", KEY)
    hide_environment()
    row = {"text": f"postgres {KEY}", "n": 1, "turns": [{"content": KEY, "more": None}]}
    hidden = {"text": "postgres [hidden]", "n": 1, "turns": [{"content": "[hidden]", "more": None}]}
    assert row_without_keys(row) == hidden
    assert redacted("as postgres") == "as [hidden]"


def test_many_rows_are_looked_through_in_little_time():
    hide_key(KEY)
    text = "The answer is 5, since 2 + 3 = 5, as sk- shows. " * 20
    assert without_keys(text) == text

    def took(look):
        begun = time.process_time()
        for _ in range(10_000):
            look(text)
        return time.process_time() - begun

    # A row is also encoded to be written, and hashed: beside these the look may not be seen.
    encoded = min(took(lambda t: hashlib.sha256(json.dumps(t).encode())) for _ in range(5))
    assert min(took(without_keys) for _ in range(5)) < 3 * encoded


def test_secrets_of_the_configuration_are_known():
    hide_secrets_of(load_config("tiny", None, [f"critic.engine.api_key={KEY}"], {}))
    assert redacted(KEY) == "[hidden]"


def test_a_secret_is_in_no_line_of_the_log(folder):
    hide(KEY)
    with logging_to(folder):
        logging.getLogger("lpfloop.x").error(
            "401: %s", KEY, extra={"fields": {"header": f"Bearer {KEY}", "list": [KEY]}}
        )
        try:
            raise ValueError(KEY)  # noqa: TRY301
        except ValueError:
            logging.getLogger("lpfloop.x").exception("failed")
    assert KEY not in (folder / "logs/run.jsonl").read_text()


# streams


def test_a_stream_that_breaks_breaks_nothing_and_tells_no_secret(tmp_path):
    hide(KEY)
    with (tmp_path / "out").open("w") as file:
        stream = Unbreakable(file)
        assert stream.write(f"key {KEY}\n") == len(KEY) + 5
        stream.flush()
        assert not stream.isatty()
        assert stream.fileno() == file.fileno()
    assert (tmp_path / "out").read_text() == "key [hidden]\n"


def test_a_full_disk_breaks_no_stream():
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 -- closing it fails
    stream = Unbreakable(full)
    assert stream.write("lost\n") == 5
    stream.flush()
    with pytest.raises(OSError, match="No space"):
        full.close()


def test_no_stream_is_a_stream_too():
    stream = Unbreakable(None)
    assert stream.write("lost") == 4
    stream.flush()
    assert not stream.isatty()
    assert stream.encoding == "utf-8"
