"""The local cache of the model hub, in the layout that every program of the hub shares.

A repository is a folder `models--OWNER--NAME` or `datasets--OWNER--NAME`; `refs` holds the commit
of a branch when it was fetched, and `snapshots` the files of each commit. Reading from it uses only
the disk; `hub_download` fills it.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

HubKind = Literal["model", "dataset"]
DEFAULT_REVISION = "main"
COMMIT = re.compile(r"[0-9a-f]{40}")
PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
MODEL = re.compile(rf"(?P<repo>{PART}/{PART})(@(?P<revision>{PART}))?")
DATASET = re.compile(
    rf"hf:(?P<repo>{PART}(/{PART})?)(@(?P<revision>{PART}))?(/(?P<inside>[^/].*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubName:
    """A repository of the hub, at a revision, and a place inside it."""

    kind: HubKind
    repo: str
    revision: str | None = None
    inside: str = ""

    @property
    def written(self) -> str:
        """The name as it is configured."""
        at = "" if self.revision is None else f"@{self.revision}"
        inside = f"/{self.inside}" if self.inside else ""
        return f"{'hf:' if self.kind == 'dataset' else ''}{self.repo}{at}{inside}"

    @property
    def noun(self) -> str:
        """What it is: a model or a data set."""
        return "data set" if self.kind == "dataset" else "model"

    def at(self, commit: str) -> "HubName":
        """Return the same at a commit, whose files never change."""
        return replace(self, revision=commit)


def model_name(text: str) -> HubName | None:
    """Return the model that a text names by OWNER/NAME or OWNER/NAME@REVISION, if it does."""
    match = MODEL.fullmatch(text)
    return match and HubName(kind="model", repo=match["repo"], revision=match["revision"])


def dataset_name(text: str) -> HubName | None:
    """Return the data set that a text names by hf:OWNER/NAME[@REVISION][/PLACE], if it does."""
    match = DATASET.fullmatch(text)
    return match and HubName(
        kind="dataset", repo=match["repo"], revision=match["revision"], inside=match["inside"] or ""
    )


def cache_folder() -> Path:
    """Return the folder of the cache, from the environment variables of the hub's programs."""
    for variable, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub")):
        if os.environ.get(variable):
            return Path(os.environ[variable]).expanduser() / below
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return user / "huggingface" / "hub"


def commit_of(name: HubName) -> str | None:
    """Return the commit of a cached repository; None if it, or the revision, is not cached."""
    folder = _repository(name)
    revision = name.revision or DEFAULT_REVISION
    known = folder / "refs" / revision
    commit = known.read_text().strip() if known.is_file() else revision
    return commit if (folder / "snapshots" / commit).is_dir() else None


def snapshot(name: HubName) -> Path | None:
    """Return the folder of a cached repository's files; None if they are not cached."""
    commit = commit_of(name)
    return None if commit is None else _repository(name) / "snapshots" / commit


def not_cached(name: HubName) -> str:
    """Return the error text for a repository that the cache lacks: its content and a remedy."""
    here, option = "no such folder here, and ", ""
    if name.kind == "dataset":
        here, option = "", "--repo-type dataset "
    others = _cached_names(name.kind)
    there = f"it holds {', '.join(others[:8])}" if others else f"it holds no {name.noun}s"
    return (
        f"{name.written}: {here}no such {name.noun} in the hub's cache {cache_folder()} ({there}); "
        f"`lpfloop run --download` or `hf download {option}{name.repo}` fetches it"
    )


def _repository(name: HubName) -> Path:
    return cache_folder() / f"{name.kind}s--{name.repo.replace('/', '--')}"


def _cached_names(kind: HubKind) -> list[str]:
    """Return the names of the cached repositories of a kind."""
    prefix = f"{kind}s--"
    folders = sorted(cache_folder().glob(f"{prefix}*/snapshots"))
    return [folder.parent.name.removeprefix(prefix).replace("--", "/", 1) for folder in folders]
