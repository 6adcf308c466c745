"""An agent behind the gateway: it injects every model a look at the team's tickets, and no client notices."""

from rondel import Plugin, tool

TICKETS = {
    "T-17": "The kettle page shows last year's prices. Wanted by Friday.",
    "T-18": "Parcels to islands take two days longer than the page says.",
}


@tool(idempotent=True)
def find_ticket(number: str) -> str:
    "What a ticket says, by its number, such as T-17."
    return TICKETS.get(number.strip().upper(), f"there is no ticket {number!r}; there are {', '.join(TICKETS)}")


class Tickets(Plugin):
    name = "tickets"
    tools = (find_ticket,)
    looks_for = (b"T-",)  # requests without these bytes are passed on unread

    def applies(self, turn):
        return any(number in message.text for message in turn.prompt().history for number in TICKETS)

    async def on_prompt(self, turn, prompt):
        return prompt.instruct("Look tickets up with find_ticket before you speak of them.")
