"""The doctor's findings, as text and as JSON.

A finding is `ok`, a `note` that does not prevent a run, or `missing`, which does.
"""

import json
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "note", "missing"]

MARKS: dict[Status, str] = {"ok": "ok     ", "note": "note   ", "missing": "MISSING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check: its result, and the remedy if something is wrong."""

    about: str
    status: Status
    detail: str
    remedy: str | None = None
    is_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All findings."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether `lpfloop run` would start."""
        return all(finding.status != "missing" for finding in self.findings)

    def as_json(self) -> str:
        """Return one JSON document."""
        found = [asdict(finding) for finding in self.findings]
        return json.dumps({"ok": self.ok, "findings": found}, indent=2)

    def as_text(self, *, versions: bool = False) -> str:
        """Return the verdict, then one line for each finding with its remedy below.

        Problems that prevent a run come first, versions last; without `versions`, only missing
        packages are shown.
        """
        missing = sum(finding.status == "missing" for finding in self.findings)
        shown = [f for f in self.findings if versions or not f.is_version or f.status == "missing"]
        shown.sort(key=lambda finding: (finding.status != "missing", finding.is_version))
        width = max(len(finding.about) for finding in shown)
        lines = [
            "`lpfloop run` would start" if self.ok else f"{missing} missing: it would not start"
        ]
        for finding in shown:
            detail = " ".join(finding.detail.split())
            lines.append(f"{MARKS[finding.status]}  {finding.about:<{width}}  {detail}")
            if finding.remedy:
                lines.append(f"{'':9}{'':{width}}  -> {finding.remedy}")
        hidden = len(self.findings) - len(shown)
        more = [f"{hidden} versions are as needed: --versions lists them"] if hidden else []
        return "\n".join([*lines, *more])
