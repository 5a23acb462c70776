"""Own rubric: a judge rates the tiny policy's answers by your aspects.

Run it: `python examples/own_rubric.py`. The policy is the tiny world's real model. The judge is a
fake of 20 lines behind an OpenAI-compatible URL, since no model of a million parameters reads a
rubric that it was not trained on. Replace its URL by your judge's, and keep the rubric.
"""

import json
import tempfile
import threading
from pathlib import Path

import polars as pl
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import lpfloop

PORT = 8124
RUBRIC = """
aspects:
  - name: Brevity
    criteria: Does the answer say it in few words?
    levels: {-1: more than 25 words, 0: 16 to 25 words, 1: up to 15 words}
  - name: Courtesy
    criteria: Does the answer greet the user?
    levels: {-1: it does not, 0: with one word, 1: warmly}
  - name: Calm
    criteria: Does the answer do without exclamation marks?
    levels: {-1: it has several, 0: it has one, 1: it has none}
"""


def rated(answer: str) -> str:
    """Return the judge's reply about an answer: a remark, and a rating of each aspect."""
    words = len(answer.split())
    ratings = {
        "Brevity": 1 if words <= 15 else 0 if words <= 25 else -1,
        "Courtesy": 1 if "Gladly" in answer else 0 if "Sure" in answer else -1,
        "Calm": max(-1, 1 - answer.count("!")),
    }
    return f"It has {words} words.\n{json.dumps(ratings)}"


async def chat(request: Request) -> JSONResponse:
    """Answer one question of the critic in OpenAI's protocol."""
    asked = await request.json()
    answer = asked["messages"][-1]["content"].partition("[Answer]")[2].partition("\n")[0]
    message = {"role": "assistant", "content": rated(answer)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    reply = {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"]}
    return JSONResponse({**reply, "choices": [choice]})


async def models(_: Request) -> JSONResponse:
    """List the served model."""
    return JSONResponse({"object": "list", "data": [{"id": "judge", "object": "model"}]})


def main() -> None:
    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)]
    server = uvicorn.Server(
        uvicorn.Config(Starlette(routes=routes), port=PORT, log_level="warning")
    )
    threading.Thread(target=server.run, daemon=True).start()
    rubric = Path(tempfile.gettempdir()) / "lpfloop-rubric.yaml"  # kept for a second run
    rubric.write_text(RUBRIC)
    settings = {
        "critic.aspects": str(rubric),
        "critic.task_aspects": {},
        "critic.engine": {"kind": "openai", "model_name": "judge"},
        "policy.engine.kind": "transformers",
        "reward.model": "none",
        "assessment.kl": False,
        "prompts.per_iteration": 8,
        "prompts.max_test": 12,
        "prompts.max_dev": 4,
    }
    url = f"http://127.0.0.1:{PORT}/v1"
    run = lpfloop.run("tiny", critic=url, iterations=0, name="own-rubric", set=settings)
    mean = pl.col("rating").mean().round(2).alias("mean rating")
    print(run.ratings().group_by("task", "aspect").agg(mean).sort("task", "aspect").collect())
    print(run.critiques(aspect="Courtesy", rating=1, limit=3).collect())


if __name__ == "__main__":
    main()
