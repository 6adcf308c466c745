"""Agents as an MCP server, used by the SDK's own client: `python examples/mcp_server.py`.

`rondel mcp serve` does the same on stdin and stdout, and `rondel serve` at `/mcp`. Needs `pip install '.[mcp]'`.
"""

import asyncio

from mcp_types import ElicitRequestParams, ElicitResult

from mcp import Client
from rondel import Agent, App
from rondel.mcp import make_server
from rondel.testing import Scripted, call, say


async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
    print(f"The agent asks: {params.message}")
    return ElicitResult(action="accept", content={"answer": "large"})


async def main() -> None:
    model = Scripted(call("ask_user", question="Which size?", options=["small", "large"]), say("One large box."))
    agent = Agent("shop", "You take orders.", engine=model, tools=["ask_user"], description="Takes orders.")
    async with App(agent) as app, Client(make_server(app).server, elicitation_callback=answer) as client:
        tools = await client.list_tools()
        print(tools.tools[0].name, "-", tools.tools[0].description)  # shop - Takes orders.
        result = await client.call_tool("shop", {"input": "A box, please."})
        print(result.content[0].text)  # One large box.


if __name__ == "__main__":
    asyncio.run(main())
