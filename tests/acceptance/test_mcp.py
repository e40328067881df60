"""``drumline mcp`` in the hands of an agent: the client of the protocol's own SDK, over standard input and output."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cli_jobs import wait_for_status, write_job

mcp = pytest.importorskip("mcp")
mcp_stdio = pytest.importorskip("mcp.client.stdio")

SECRET = "https://me:hunter2@host/a"
FAILING = f"""python -c "print('\\x1b[31mfrom {SECRET}'); import os; raise SystemExit(7 * int(os.environ['RANK']))" """
RANKS = {"distribution": {"type": "pytorch", "process_count_per_instance": 2}}


def use_tools(session: Callable[[Any], Awaitable[None]], *options: str) -> None:
    """Start the server as an agent does, and talk to it."""

    async def talk() -> None:
        server = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "drumline", "mcp", *options], env=dict(os.environ)
        )
        async with (
            mcp_stdio.stdio_client(server) as (read, write),
            mcp.ClientSession(read, write) as client,
        ):
            await client.initialize()
            await session(client)

    asyncio.run(asyncio.wait_for(talk(), 240))


async def ask(client: Any, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content[0].text
    return json.loads(answer.content[0].text)


async def refuse(client: Any, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    text: str = answer.content[0].text
    assert "Traceback" not in text
    return text


def test_an_agent_lints_submits_asks_why_and_cancels(tmp_path: Path) -> None:
    failing = write_job(tmp_path, FAILING, name="bad", outputs={"unused": {}}, **RANKS)
    folder = tmp_path / "other"
    folder.mkdir()
    endless = write_job(folder, 'python -c "import signal; signal.pause()"', **RANKS)

    async def session(client: Any) -> None:
        listed = (await client.list_tools()).tools
        assert {tool.name: tool.annotations.read_only_hint for tool in listed} == {
            **dict.fromkeys(("show", "why", "logs", "lint"), True),
            **dict.fromkeys(("submit", "cancel", "drill"), False),
        }
        rules = [trap["rule"] for trap in (await ask(client, "lint", file=str(failing)))["found"]]
        assert "unused-input" in rules
        name = (await ask(client, "submit", file=str(failing)))["name"]
        assert name == "bad"
        shown = await ask(client, "show", name=name, wait_s=120)
        assert (shown["status"], shown["exit_code"]) == ("Failed", 7)
        told = await ask(client, "why", name="@last")
        assert (told["name"], told["status"], told["failed_rank"]["rank"]) == ("bad", "Failed", 1)
        assert "exit code 7" in told["reason"] or "exited with 7" in told["reason"], told["reason"]
        logs = await ask(client, "logs", name=name, ranks="1", count=5)
        assert logs["lines"] == ["0 [1|node-0] from https://...@host/a"]
        assert (await ask(client, "logs", name=name, query="nowhere"))["lines"] == []

        other = (await ask(client, "submit", file=str(endless), set={"name": "endless"}))["name"]
        assert other == "endless"
        refused = await refuse(client, "cancel", name="endl")
        assert refused.startswith("error: there is no job 'endl'")
        wait_for_status(other, "Running")
        refused = await refuse(client, "drill", name=other, kind="kill-rank", rank=9)
        assert "ranks, counted from 0" in refused
        begun = await ask(client, "drill", name=other, kind="wedge", rank=1)
        assert "'wedge'" in begun["began"]
        assert begun["began"] in str((await ask(client, "why", name=other))["drills"])
        assert await ask(client, "cancel", name=other) == {"name": other, "requested": True}
        assert (await ask(client, "show", name=other, wait_s=120))["status"] == "Canceled"

    use_tools(session, "--allow-write")


def test_an_agent_that_may_only_look_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = write_job(tmp_path, "true", experiment_nam="x")

    async def session(client: Any) -> None:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["show", "why", "logs", "lint"]
        assert await refuse(client, "submit", file=str(path)) == (
            "error: there is no tool 'submit'\nhint: start drumline mcp with --allow-write"
        )
        assert await refuse(client, "logs", name="x", count=10**6) == (
            "error: count: 1000000 is greater than the maximum of 200\nhint: the arguments of logs"
        )
        assert (await refuse(client, "show", name="x")).startswith("error: there is no job 'x'")
        wrong = await refuse(client, "lint", file=str(path))
        assert wrong.startswith(f"error: {path}:1:"), wrong
        assert "experiment_name" in wrong

    use_tools(session)
