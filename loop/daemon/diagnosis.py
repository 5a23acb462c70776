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
    """One check: what was found, and the remedy if something is wrong."""

    about: str
    status: Status
    detail: str
    remedy: str | None = None


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

    def as_text(self) -> str:
        """Return one line for each finding, its remedy below, and the verdict."""
        width = max(len(finding.about) for finding in self.findings)
        lines = list[str]()
        for finding in self.findings:
            detail = " ".join(finding.detail.split())
            lines.append(f"{MARKS[finding.status]}  {finding.about:<{width}}  {detail}")
            if finding.remedy:
                lines.append(f"{'':9}{'':{width}}  -> {finding.remedy}")
        missing = sum(finding.status == "missing" for finding in self.findings)
        verdict = (
            "`lpfloop run` would start" if self.ok else f"{missing} missing: it would not start"
        )
        return "\n".join([*lines, "", verdict])
