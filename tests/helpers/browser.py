"""A real headless Chromium for tests of the viewer's pages.

Playwright drives the Chromium on PATH; without either, tests skip.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LATE_MS = 120_000
"""Timeout; the awaited element appears within a second or two unless the machine is busy."""
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """The program's path; without it, or without Playwright, the test skips."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser on PATH: {', '.join(NAMES)}")
    return found


@contextmanager
def browsing() -> Iterator[Any]:
    """Yield a running browser, and close it at the end."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=list(QUIET), timeout=LATE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True, slots=True)
class Complaints:
    """Messages, errors and foreign requests of a page, none of them allowed; filled during use."""

    console: list[str] = field(default_factory=list)
    """Errors and warnings, including refusals by the Content-Security-Policy."""
    errors: list[str] = field(default_factory=list)
    """Exceptions of scripts."""
    dialogs: list[str] = field(default_factory=list)
    """Texts of `alert` and the like: a model's text ran as a script."""
    requests: list[str] = field(default_factory=list)
    """Requested addresses, except those that begin with the page's own."""

    def listed(self) -> list[str]:
        """Return all of them, for comparison with an empty list."""
        return [*self.console, *self.errors, *self.dialogs, *self.requests]


@contextmanager
def opened(
    browser: Any, *, own: str, options: Mapping[str, Any] | None = None
) -> Iterator[tuple[Any, Complaints]]:
    """Yield a page in a fresh browser context, and its complaints.

    Args:
        browser: what `browsing` yields.
        own: prefix of the page's addresses; requests for other addresses are complaints.
        options: Playwright's options of a context: `viewport`, `color_scheme`...
    """
    complaints = Complaints()

    def say(message: Any) -> None:
        if message.type in {"error", "warning"}:
            complaints.console.append(message.text)

    def fail(error: object) -> None:
        complaints.errors.append(str(error))

    def dismiss(dialog: Any) -> None:
        complaints.dialogs.append(dialog.message)
        dialog.dismiss()

    def note(request: Any) -> None:
        if not request.url.startswith((own, "data:")):
            complaints.requests.append(request.url)

    context = browser.new_context(**(options or {}))
    context.set_default_timeout(LATE_MS)
    try:
        page = context.new_page()
        page.on("console", say)
        page.on("pageerror", fail)
        page.on("dialog", dismiss)
        page.on("request", note)
        yield page, complaints
    finally:
        context.close()
