"""Bare clients to compare the engine with: they send requests, and check the answers.

Both limit the requests in flight by a semaphore, keep a connection for each of them, and set no
timeout: with the `openai` client's default settings 900 of 1,000 connections would be opened again
each time, and a connection that takes over 5 s to open would fail.
"""

import asyncio
import json
from collections.abc import Sequence

import aiohttp
import httpx2
import openai

from lpfloop.policies.engines.engine import Request, Sampling


async def ask_all(
    url: str, requests: Sequence[Request], sampling: Sampling, in_flight: int
) -> None:
    """Send requests with the `openai` client, with a connection for each request in flight."""
    limits = httpx2.Limits(max_connections=in_flight, max_keepalive_connections=in_flight)
    client = openai.AsyncOpenAI(
        base_url=url,
        api_key="none",
        max_retries=0,
        timeout=None,
        http_client=httpx2.AsyncClient(limits=limits, timeout=None),
    )
    slots = asyncio.Semaphore(in_flight)

    async def ask(request: Request) -> None:
        async with slots:
            done = await client.chat.completions.create(
                model="m",
                messages=[{"role": m.role, "content": m.content} for m in request.messages],  # pyright: ignore[reportArgumentType]
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_completion_tokens=sampling.max_tokens,
                seed=request.seed,
            )
            assert done.choices[0].message.content

    await asyncio.gather(*map(ask, requests))
    await client.close()


async def ask_all_plainly(
    url: str, requests: Sequence[Request], sampling: Sampling, in_flight: int
) -> None:
    """Send requests with `aiohttp` alone: the minimum for a client in this language."""
    slots = asyncio.Semaphore(in_flight)
    connector = aiohttp.TCPConnector(limit=in_flight)
    unlimited = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=unlimited) as session:

        async def ask(request: Request) -> None:
            body = {
                "model": "m",
                "messages": [{"role": m.role, "content": m.content} for m in request.messages],
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_completion_tokens": sampling.max_tokens,
                "seed": request.seed,
            }
            async with slots, session.post(f"{url}/chat/completions", json=body) as reply:
                done = json.loads(await reply.read())
                assert done["choices"][0]["message"]["content"]

        await asyncio.gather(*map(ask, requests))
