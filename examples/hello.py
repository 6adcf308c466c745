import rondel
from rondel.testing import Scripted, call, say


@rondel.tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


model = Scripted(call("add", a=2, b=40), say("It is 42."))
agent = rondel.Agent("adder", engine=model, tools=[add])
print(rondel.run(agent, "What is 2 + 40?"))  # It is 42.
