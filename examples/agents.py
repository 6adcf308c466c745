"""An agent that asks another one. Each works on a transcript of its own."""

import rondel
from rondel.testing import Scripted, call

almanac = rondel.Agent(
    "almanac",
    "You know the usual weather of every place.",
    engine=Scripted("In May it is mild in Lisbon."),
    description="The usual weather of a place in a month",
    inputs={"place": {"type": "string"}, "month": {"type": "string"}},
)
guide = rondel.Agent(
    "guide",
    "You help people to pack.",
    engine=Scripted(call("almanac", place="Lisbon", month="May"), "Take a light coat."),
    tools=[almanac],
)
print(rondel.run(guide, "What do I need in Lisbon in May?"))  # Take a light coat.
