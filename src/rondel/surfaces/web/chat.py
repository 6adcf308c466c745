"""`POST /api/chat`: messages in, one message out. The whole conversation comes with each request and is not stored."""

from __future__ import annotations

from typing import Literal

from ...errors import RondelError, TokenLimitError
from ...values import Message, Text, Value
from .conversations import TEXT_CHARS_MAX, give_history
from .route import Call, Nothing, Problem, Route

MESSAGES_MAX = 2_000


class ChatMessage(Value, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str


class Chat(Value, frozen=True):
    messages: tuple[ChatMessage, ...]
    agent: str = ""


class ChatAnswer(Value, frozen=True):
    message: ChatMessage


async def chat(call: Call[Chat, Nothing]) -> ChatAnswer:
    """Always answers: a turn that fails or waits for a person says so in one sentence."""
    given = call.body.messages
    if not given:
        raise Problem(400, "there are no messages; send at least one message of the user")
    if len(given) > MESSAGES_MAX or sum(len(message.content) for message in given) > TEXT_CHARS_MAX:
        raise Problem(413, f"at most {MESSAGES_MAX} messages with {TEXT_CHARS_MAX:,} characters can be sent")
    if given[-1].role != "user":
        raise Problem(400, "the last message must be the user's")
    conversation = call.app.conversation(agent=call.agent(call.body.agent))
    history = tuple(Message(one.role, (Text(one.content),), id=call.app.new_id("msg")) for one in given[:-1])
    await give_history(call, conversation, history)
    try:
        view = await conversation.send(given[-1].content, person=call.person, scope=call.scope)
        result = await view.result()
    except RondelError as error:
        if isinstance(error.__cause__, TokenLimitError):
            raise error.__cause__ from None  # says when to try again
        raise Problem(502, str(error)) from None
    finally:
        await call.app.store.delete(conversation.id)
    if result.error and not result.output:
        raise Problem(502, result.error)
    return ChatAnswer(ChatMessage("assistant", result.output))


ROUTES = (
    Route("POST", "/api/chat", chat, "Send a conversation and get the next message.", body=Chat, returns=ChatAnswer),
)
