"""lpfloop hides secrets in every form that a server or a log may give them."""

import base64
import json
from urllib.parse import quote

import pytest

from lpfloop.configs import secrecy
from lpfloop.configs.secrecy import BLACKED, Blackout, row_without_keys

KEYS = ("sk-canary-7f3a91c2d4e8b650", "/sk-canary/7f3a+=", "7301948265510394", 'quo"ted\\key é')


@pytest.fixture
def nothing_hidden(monkeypatch):
    """Start without known secrets, and forget the test's."""
    monkeypatch.setattr(secrecy, "_keys", Blackout())
    monkeypatch.setattr(secrecy, "_every", Blackout())


def test_forms_of_a_key():
    for key in KEYS:
        hidden = Blackout()
        hidden.add(key)
        for before in ("", "B", "Be"):
            encoded = base64.b64encode(f"{before}{key}".encode()).decode()
            assert encoded[4:-4] not in hidden.over(encoded), (key, before)
        for form in (key, quote(key, safe=""), json.dumps(key)[1:-1]):
            assert hidden.over(f"Bearer {form}.") == f"Bearer {BLACKED}.", (key, form)
    short = Blackout()
    short.add("of")
    assert short.empty
    assert short.over("out of four") == "out of four"


def test_keys_in_rows(nothing_hidden):
    row = {"text": f"It is {KEYS[0]}.", "list": [KEYS[0], {"n": 1}], "none": None}
    assert row_without_keys(row) is row
    secrecy.hide_key(KEYS[0])
    expected = {"text": f"It is {BLACKED}.", "list": [BLACKED, {"n": 1}], "none": None}
    assert row_without_keys(row) == expected
