"""Every name in a span: OpenTelemetry's semantic conventions for generative AI, and a few of our own."""

from __future__ import annotations

INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
CONVERSATION = "gen_ai.conversation.id"
AGENT = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
TOKENS_IN = "gen_ai.usage.input_tokens"
TOKENS_OUT = "gen_ai.usage.output_tokens"
TOKENS_CACHED = "gen_ai.usage.cache_read.input_tokens"
TOKENS_CACHE_WRITTEN = "gen_ai.usage.cache_creation.input_tokens"
TOKENS_REASONING = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"

# Only with `content = true`: what people, models and tools said.
INSTRUCTIONS = "gen_ai.system_instructions"
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

TURN = "rondel.turn.id"
OUTCOME = "rondel.outcome"
RAN = "rondel.ran"
NOTE = "rondel.note"
NOTE_TEXT = "rondel.note.text"

CONVENTIONS = "https://opentelemetry.io/schemas/1.37.0"

PROVIDERS = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""The conventions' name of a provider, if it differs from ours."""
FINISHED = {"end": "stop", "calls": "tool_calls", "stop_sequence": "stop", "refusal": "content_filter"}
"""The conventions' name of a stop reason, if it differs from ours."""
