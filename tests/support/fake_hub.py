"""A model hub on loopback, and a cache of one, laid out as the hub's own programs do it."""

import hashlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(cache: Path, kind: str, repo: str, files: Mapping[str, bytes]) -> Path:
    """Put a repository into a cache: blobs, and a snapshot of links to them; return the latter."""
    folder = cache / f"{kind}s--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    for place, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.parent.mkdir(exist_ok=True)
        blob.write_bytes(data)
        link = folder / "snapshots" / COMMIT / place
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return folder / "snapshots" / COMMIT


class FakeHub:
    """Serves repositories: `models` and `datasets` by name, each the bytes of its files by path.

    A repository of None is gated.
    """

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Mapping[str, bytes] | None] = {}
        self.given: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.meet(self, body=True)

            def do_HEAD(self) -> None:
                hub.meet(self, body=False)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def meet(self, asked: BaseHTTPRequestHandler, *, body: bool) -> None:
        """Answer as the hub does: what a revision is, which files it has, and the files."""
        parts = unquote(urlsplit(asked.path).path).strip("/").split("/")
        api = parts[0] == "api"
        parts = parts[1:] if api else parts
        kind = parts.pop(0) if parts[0] in ("models", "datasets") else "models"
        repo, what, rest = "/".join(parts[:2]), parts[2], parts[3:]
        files = self.repositories.get((kind, repo), {})
        if files is None:
            _say(asked, 403, b"", {"X-Error-Code": "GatedRepo"}, body=body)
        elif not files:
            _say(asked, 404, b"", {"X-Error-Code": "RepoNotFound"}, body=body)
        elif rest[0] not in ("main", COMMIT):
            _say(asked, 404, b"", {"X-Error-Code": "RevisionNotFound"}, body=body)
        elif what == "revision":
            told = {"id": repo, "sha": COMMIT, "siblings": []}
            _say(asked, 200, json.dumps(told).encode(), {}, body=body)
        elif what == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(data), "oid": _name(data)}
                for path, data in files.items()
            ]
            _say(asked, 200, json.dumps(listed).encode(), {}, body=body)
        else:
            path = "/".join(rest[1:])
            if body:
                self.given.append(path)
            headers = {"ETag": f'"{_name(files[path])}"', "X-Repo-Commit": COMMIT}
            _say(asked, 200, files[path], headers, body=body)


def _name(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()  # noqa: S324 -- git's own name of a blob's content


def _say(
    asked: BaseHTTPRequestHandler,
    status: int,
    data: bytes,
    headers: Mapping[str, str],
    *,
    body: bool,
) -> None:
    asked.send_response(status)
    kind = "application/json" if "ETag" not in headers else "application/octet-stream"
    for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
        asked.send_header(name, value)
    asked.end_headers()
    if body:
        asked.wfile.write(data)
