"""The run's log: one object a line, bounded, without secrets, never blocking."""

import base64
import json
import logging

import pytest

from lpfloop.configs import secrecy
from lpfloop.configs.load import load_config
from lpfloop.configs.secrecy import (
    Blackout,
    hide,
    hide_environment,
    hide_own_key,
    hide_secrets_of,
    redact,
    row_without_keys,
    without_keys,
)
from lpfloop.loop.daemon.logs import logging_to

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


HOSTILE = ['x\n{"level": "info", "message": "forged"}', "\x1b]0;title\x07", "\u202egnp", "\ud800"]


def test_no_text_can_forge_a_line(folder):
    with logging_to(folder):
        for text in HOSTILE:
            logging.getLogger("lpfloop.x").info("%s", text, extra={"fields": {"said": text}})
    data = (folder / "logs/run.jsonl").read_bytes()
    assert data.count(b"\n") == len(HOSTILE)
    assert all(0x20 <= byte < 0x7F for byte in data.replace(b"\n", b""))
    assert [line["message"] for line in written(folder)] == HOSTILE


def test_secret_is_hidden_in_every_form():
    for secret in [KEY, "päss wörd/+&=", "\udcff\udcfe-undecodable-"]:
        hide(secret)
        assert redact(f"x{secret}y") == "x[hidden]y"
    for before in (b"", b"u", b"us", b"user:"):
        for text in (before + KEY.encode() + b" and more", before + KEY.encode()):
            hidden = redact(f"told: {base64.urlsafe_b64encode(text).decode()} end")
            assert "[hidden]" in hidden
            assert base64.b64encode(KEY.encode()).decode()[4:-4] not in hidden


def test_secrets_of_environment_by_name(environ):
    secrets = {name: f"value-of-{name}" for name in ("HF_TOKEN", "my_secret", "DB_PASSWORD")}
    # They may resemble a path or a number.
    secrets |= {"LPFLOOP_API_KEY": "/aB3dE5fG7hJ9kL", "AWS_SECRET_ACCESS_KEY": "73019482655103"}
    environ.update(secrets)
    environ["PLAIN"] = "value-of-plain"
    environ["MAX_TOKENS"] = "10000000"
    environ["KEY_FILE"] = "/etc/keys/key"
    environ["SIGNING_KEY"] = "/etc/hostname"
    hide_environment()
    for value in secrets.values():
        assert redact(f"told {value}!") == "told [hidden]!"
    for text in ("value-of-plain", "10000000", "/etc/keys/key", "/etc/hostname"):
        assert redact(text) == text


def test_other_texts_stay(environ):
    for value in ["", "none", "1234567"]:
        environ["LPFLOOP_API_KEY"] = value
        hide_environment()
        hide_own_key(environ)
    text = "There is none: 1234567 is at https://example.org/a@b?c=d"
    assert redact(text) == without_keys(text) == text
    assert redact("at https://joe:pw@example.org/v1") == "at https://example.org/v1"


def test_rows_lose_keys_and_no_password(environ):
    environ["POSTGRES_PASSWORD"] = "postgres"
    environ["LPFLOOP_API_KEY"] = KEY
    hide_environment()
    hide_own_key(environ)
    row = {"text": f"postgres {KEY}", "n": 1, "turns": [{"content": KEY, "more": None}]}
    hidden = {"text": "postgres [hidden]", "n": 1, "turns": [{"content": "[hidden]", "more": None}]}
    assert row_without_keys(row) == hidden
    assert redact("as postgres") == "as [hidden]"


def test_secret_is_in_no_line(folder):
    hide_secrets_of(load_config("tiny", None, [f"critic.engine.api_key={KEY}"], {}))
    with logging_to(folder):
        logging.getLogger("lpfloop.x").error(
            "401: %s", KEY, extra={"fields": {"header": f"Bearer {KEY}", "list": [KEY]}}
        )
        try:
            raise ValueError(KEY)  # noqa: TRY301
        except ValueError:
            logging.getLogger("lpfloop.x").exception("failed")
    assert KEY not in (folder / "logs/run.jsonl").read_text()
