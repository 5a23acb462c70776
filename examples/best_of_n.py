"""Best of n behind an endpoint: a server that answers with the best of eight, by a reward model.

Run it: `python examples/best_of_n.py`. The server speaks OpenAI's protocol, so lpfloop can measure
it like any policy: here next to the same tiny policy, whose first answer counts. To use other
models, replace the two paths by their folders.
"""

import threading
from pathlib import Path

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import lpfloop

N, PORT = 8, 8123
MODELS = Path(lpfloop.__file__).parent / "loop" / "tiny" / "models"
SETTINGS = {
    "critic.kind": "verifier",
    "reward.model": "none",
    "assessment.kl": False,
    "prompts.max_test": 24,
    "prompts.max_dev": 4,
}
LOCAL = {"policy.engine.kind": "transformers"}
SERVED = {"policy.engine": {"kind": "openai", "model_name": "best-of-8", "concurrency": 4}}

tokenizer = AutoTokenizer.from_pretrained(MODELS / "policy")
policy = AutoModelForCausalLM.from_pretrained(MODELS / "policy", dtype=torch.float32)
reward = AutoModelForSequenceClassification.from_pretrained(MODELS / "reward", dtype=torch.float32)


def best(messages: list[dict[str, str]]) -> str:
    """Draw n answers, and return the one with the highest reward."""
    asked = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    drawn = policy.generate(**asked, do_sample=True, num_return_sequences=N, max_new_tokens=64)
    length = asked["input_ids"].shape[1]
    answers = tokenizer.batch_decode(drawn[:, length:], skip_special_tokens=True)
    with torch.inference_mode():
        return max(answers, key=lambda text: score([*messages, said(text)]))


def score(conversation: list[dict[str, str]]) -> float:
    ids = tokenizer.apply_chat_template(conversation, return_tensors="pt", return_dict=True)
    return reward(**ids).logits[0, 0].item()


def said(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


async def chat(request: Request) -> JSONResponse:
    """Answer a chat completion of OpenAI's protocol."""
    asked = await request.json()
    choice = {"index": 0, "message": said(best(asked["messages"])), "finish_reason": "stop"}
    reply = {"id": "1", "object": "chat.completion", "created": 0, "model": asked["model"]}
    return JSONResponse({**reply, "choices": [choice]})


async def models(_: Request) -> JSONResponse:
    """List the served model."""
    return JSONResponse({"object": "list", "data": [{"id": "best-of-8", "object": "model"}]})


def main() -> None:
    routes = [Route("/v1/chat/completions", chat, methods=["POST"]), Route("/v1/models", models)]
    app = Starlette(routes=routes)
    server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    plain = lpfloop.run("tiny", iterations=0, name="one", set=SETTINGS | LOCAL)
    served = lpfloop.run(
        "tiny",
        policy=f"http://127.0.0.1:{PORT}/v1",
        iterations=0,
        name="best-of-8",
        set=SETTINGS | SERVED,
    )
    print(plain.compare(served.name).select("runs", "verified", "verified_stderr", "mean_length"))


if __name__ == "__main__":
    main()
