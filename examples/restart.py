"""A conversation that outlives its program: the second run reads what the first one kept."""

import tempfile
from pathlib import Path

import rondel
from rondel.testing import Scripted

model = Scripted("Have fun.", "To Lisbon.")
agent = rondel.Agent("helper", engine=model)

with tempfile.TemporaryDirectory() as folder:
    store = Path(folder, "talks.db")
    print(rondel.run(agent, "I am off to Lisbon.", store=store, conversation="holiday"))  # Have fun.
    print(rondel.run(agent, "Where am I going?", store=store, conversation="holiday"))  # To Lisbon.
    print(f"it read {len(model.prompts[1].messages)} messages")  # it read 3 messages
