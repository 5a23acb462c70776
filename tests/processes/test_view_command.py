"""`lpfloop view` as a process: it serves until Ctrl-C."""

import httpx2
import pytest
from lakes import told_run
from processes import viewing

pytestmark = pytest.mark.crash


def test_serves_until_ctrl_c(tmp_path):
    told_run(tmp_path, "seen")
    with viewing(tmp_path, "seen") as viewer:
        page = httpx2.get(viewer.entry, follow_redirects=True, trust_env=False, timeout=120)
        assert page.status_code == 200
        assert "seen" in page.text
