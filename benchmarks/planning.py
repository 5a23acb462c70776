"""A run's plan and its real cost: calls and tokens, with a local model and an endpoint.

Runs RLRF once over a file of prompts, with a small model in a folder as the policy and a judge
that this script serves. Prints a table: the plan before the start, which assumes answers of
maximal length, and the run's cost.

    python benchmarks/planning.py --prompts gsm8k.jsonl --policy FOLDER --lake lake/planning
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from lpfloop.loop.daemon.planning import PLAN
from lpfloop.policies.engines.token_count import TURN_TOKENS, token_count
from lpfloop.stores.journal_reader import Reader

MARK = re.compile(r"VERDICT-[0-9a-f]{16}")
ASPECT = "Logical Correctness"
SAID = "The steps follow from one another, and each of them can be checked against the question. "


@contextmanager
def judge(model: Path) -> Generator[str]:
    """Serve a judge of math that counts tokens with a folder's tokenizer; yield its URL."""
    count = token_count(str(model))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"object": "list", "data": [{"id": "judge", "object": "model"}]})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            text = asked["messages"][-1]["content"]
            said = _reply(text)
            usage = {
                "prompt_tokens": count(text) + TURN_TOKENS // 2,
                "completion_tokens": count(said),
            }
            message = {"role": "assistant", "content": said}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            rest = {"id": "1", "object": "chat.completion", "created": 1, "model": "judge"}
            self._say({**rest, "choices": [choice], "usage": usage})

        def _say(self, value: Mapping[str, Any]) -> None:
            body = json.dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name there
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()


def _reply(text: str) -> str:
    drawn = zlib.crc32(text.encode())
    rating = 1 if drawn % 2 else -1
    mark = MARK.findall(text)
    said = SAID * (1 + drawn % 5)
    if not mark:
        return f"{ASPECT}: {said}\n{json.dumps({ASPECT: rating})}"
    return json.dumps({"verdict_mark": mark[-1], ASPECT: {"comment": said, "rating": rating}})


KEYS = ("calls", "judge_calls", "prompt_tokens", "tokens")


def lpfloop(*words: object) -> str:
    """Call lpfloop; return its output."""
    command = [sys.executable, "-P", "-m", "lpfloop", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def plan_of(folder: Path) -> Mapping[str, Any]:
    """Return the plan of a run at its start."""
    reader = Reader(folder)
    try:
        return cast("Mapping[str, Any]", reader.events(PLAN)[0])
    finally:
        reader.close()


def compared(options: Sequence[object], lake: Path) -> list[str]:
    """Run once; return lines of a table with the plan and the cost."""
    lpfloop("run", *options, "--lake", lake, "--run", "one")
    status = json.loads(lpfloop("status", "one", "--lake", lake, "--json"))
    planned = plan_of(lake / "runs" / "one")["totals"]
    stages = [s for turn in (*status["iterations"], *status["side_evals"]) for s in turn["stages"]]
    spent = {key: sum(s.get(key, 0) for s in stages) for key in KEYS}
    spent["judge_calls"] = status["spend"]["judge_calls"]["used"]
    return [
        f"| {key.replace('_', ' ')} | {planned[key]:,.0f} "
        f"({100 * (planned[key] / spent[key] - 1):+.0f} %) | {spent[key]:,} |"
        for key in KEYS
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--lake", type=Path, required=True, help="a new folder")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    with judge(given.policy) as url:
        options = ["--prompts", given.prompts, "--policy", given.policy, "--critic", url]
        options += [f"--set={text}" for text in given.set]
        rows = compared(options, given.lake)
    print("| what | plan before | cost |")
    print("| --- | --- | --- |")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
