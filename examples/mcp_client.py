"""An agent with two MCP servers, each a program of a few lines: `python examples/mcp_client.py`.

The model is scripted, so that it runs without a key. Needs `pip install '.[mcp]'`.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from rondel import Agent, App
from rondel.mcp import McpServers
from rondel.testing import Scripted, call, say

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("{name}")

@server.tool()
def {tool}({parameter}: str) -> str:
    "{about}"
    return {answer}

server.run("stdio")
"""
PRICES = SERVER.format(
    name="prices", tool="price", parameter="item", about="What something costs.", answer='f"{item}: 3 euros"'
)
STOCK = SERVER.format(
    name="stock", tool="count", parameter="item", about="How many are left.", answer='f"{item}: 12 left"'
)


async def main(folder: Path) -> None:
    servers = {}
    for name, program in {"prices": PRICES, "stock": STOCK}.items():
        (folder / f"{name}.py").write_text(program)
        servers[name] = {"command": sys.executable, "args": [str(folder / f"{name}.py")], "require_approval": "never"}
    model = Scripted(
        call("mcp-prices-price", item="bread"),
        call("mcp-stock-count", item="bread"),
        say("Bread costs 3 euros, and 12 are left."),
    )
    agent = Agent("shop", "You answer customers.", engine=model, plugins=[McpServers(servers)])
    async with App(agent) as app:
        turn = await app.conversation().send("Do you have bread, and what does it cost?")
        print((await turn.result()).output)  # Bread costs 3 euros, and 12 are left.
    tools = [tool.name for tool in model.prompts[0].tools]
    print(", ".join(tools))  # mcp-prices-price, mcp-stock-count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))
