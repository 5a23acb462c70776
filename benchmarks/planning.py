"""A run's plan beside what the run then cost: calls and tokens, with a model here and an endpoint.

Runs RLRF twice over a file of prompts, in one lake under two seeds, with a small model in a folder
as the policy and a judge that this script serves. Of the first run nothing was measured before, so
its answers' tokens are the most they may be; the second one's plan knows the first. Prints a table.

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
from typing import Any

from lpfloop.policies.engines.token_count import TURN_TOKENS, token_count

MARK = re.compile(r"VERDICT-[0-9a-f]{16}")
ASPECT = "Logical Correctness"
SAID = "The steps follow from one another, and each of them can be checked against the question. "


@contextmanager
def judge(model: Path, port: int) -> Generator[str]:
    """Serve a judge of math that counts tokens as the model in a folder; give its URL."""
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
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
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
    return "\n".join([f"{ASPECT}: {said}", *mark[-1:], json.dumps({ASPECT: rating})])


def lpfloop(*words: object) -> str:
    """Call lpfloop; return what it prints."""
    command = [sys.executable, "-P", "-m", "lpfloop", *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def compared(options: Sequence[object], lake: Path, seed: int) -> list[str]:
    """Run once; return lines of a table with what was planned and what it cost."""
    name = f"seed-{seed}"
    lpfloop("run", *options, "--lake", lake, "--run", name, "--seed", seed)
    status = json.loads(lpfloop("status", name, "--lake", lake, "--json"))
    plan = status["plan"]
    stages = [s for turn in (*status["iterations"], *status["beside"]) for s in turn["stages"]]
    spent = {key: sum(s[key] for s in stages) for key in ("calls", "prompt_tokens", "tokens")}
    spent["judge_calls"] = status["spend"]["judge_calls"]["used"]
    what = "as an earlier run's" if plan["measured"] else "at most"
    rows = [f"| seed {seed}: {key} | {plan['totals'][key]:,} | {spent[key]:,} |" for key in spent]
    return [
        f"{row} {100 * (plan['totals'][key] / spent[key] - 1):+.0f} % |"
        f" {what if key == 'tokens' else ''} |"
        for row, key in zip(rows, spent, strict=True)
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0, help="of the judge, to go on with a lake")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    with judge(given.policy, given.port) as url:
        options = ["--prompts", given.prompts, "--policy", given.policy, "--critic", url]
        options += [f"--set={text}" for text in given.set]
        print("| what | planned | cost | difference | lengths of answers |")
        print("| --- | --- | --- | --- | --- |")
        for seed in (0, 1):
            print("\n".join(compared(options, given.lake, seed)), flush=True)


if __name__ == "__main__":
    main()
