"""The Model Context Protocol: tools, prompts and resources of other programs for our agents, and our agents for others.

`spec.py` and `names.py` are pure. `plugin.py` is what an agent gets; it imports the SDK (the extra `rondel[mcp]`) in a
thread when the first server is connected. `server.py` serves agents. Knows no project file and no surface.
"""
