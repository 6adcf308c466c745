"""The chat in a terminal. `Terminal(app).run(conversation)`, in `chat`, talks until the person leaves."""
