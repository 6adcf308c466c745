"""Requests as coding agents send them: more than any documentation's examples have, and kinds that nobody knows yet."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CACHED = {"type": "ephemeral", "ttl": "1h"}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def text(words: str, **more: Any) -> Json:
    return {"type": "text", "text": words, **more}


def image() -> Json:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}


ANTHROPIC: Json = {
    "model": "claude-x",
    "max_tokens": 32000,
    "stream": True,
    "temperature": 1.0,
    "system": [text("You are a coding agent.", cache_control=CACHED), text("Work in /repo.")],
    "thinking": {"type": "adaptive", "display": "summarized"},
    "output_config": {"effort": "max", "task_budget": {"type": "tokens", "total": 90000}},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "user_1_account__session_9f", "team": "7"},
    "service_tier": "auto",
    "container": {"id": "c1", "skills": [{"type": "anthropic", "skill_id": "pdf", "version": "latest"}]},
    "mcp_servers": [{"type": "url", "url": "https://mcp.example/sse", "name": "docs"}],
    "inference_geo": "eu",
    "speed": "fast",
    "x_new": {"deep": [1, {"a": "b"}]},
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "tools": [
        {"name": "Read", "description": "Reads.", "input_schema": SCHEMA, "cache_control": CACHED, "strict": True},
        {"name": "Edit", "input_schema": SCHEMA, "defer_loading": True, "eager_input_streaming": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "allowed_domains": ["example.com"]},
        {"type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600},
        {"type": "mcp_toolset", "mcp_server_name": "docs"},
        {"type": "namespace", "name": "later", "tools": [{"name": "x"}]},
    ],
    "messages": [
        {"role": "user", "content": [text("Fix it.", cache_control=CACHED), image()]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "SIG"},
                {"type": "redacted_thinking", "data": "EmwK"},
                text("I look."),
                {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a"}, "caller": {"type": "d"}},
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"path": "b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("seen"), image()], "is_error": True},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [
                        {"type": "search_result", "source": "https://e.x", "title": "T", "content": [text("found")]},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
                        {"type": "tool_reference", "tool_name": "Edit"},
                    ],
                    "cache_control": CACHED,
                },
                text("And the tests."),
            ],
        },
        {"role": "system", "content": "The person is away now."},
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "compaction", "content": "What was said."},
                {"type": "block_of_tomorrow", "value": {"x": 1}},
                text("So.", citations=[{"type": "char_location", "cited_text": "s", "document_index": 0}]),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "search_result", "source": "https://e.x", "title": "T", "content": [text("found")]},
                {"type": "document", "source": {"type": "content", "content": [text("c")]}, "title": "D"},
                {"type": "container_upload", "file_id": "f1"},
                text("Go on."),
            ],
        },
    ],
}

CHAT: Json = {
    "model": "gpt-x",
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
    "max_completion_tokens": 4000,
    "reasoning_effort": "xhigh",
    "verbosity": "low",
    "store": False,
    "metadata": {"session": "9f"},
    "prompt_cache_key": "9f",
    "prompt_cache_retention": "24h",
    "service_tier": "flex",
    "parallel_tool_calls": True,
    "web_search_options": {"search_context_size": "low"},
    "prediction": {"type": "content", "content": "def f"},
    "logit_bias": {"50256": -100},
    "x_new": {"deep": [1, {"a": "b"}]},
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
    "tools": [
        {"type": "function", "function": {"name": "read", "description": "Read", "parameters": SCHEMA, "strict": True}},
        {"type": "function", "function": {"name": "now", "x_inner": 1}, "x_outer": 2},
        {"type": "custom", "custom": {"name": "patch", "description": "Any text.", "format": {"type": "text"}}},
        {"type": "namespace", "name": "later", "tools": []},
        {"type": "web_search"},
    ],
    "messages": [
        {"role": "developer", "content": "You are a coding agent."},
        {"role": "system", "content": [text("Work in /repo.", cache_control=CACHED)], "name": "boss"},
        {
            "role": "user",
            "name": "ann",
            "content": [
                text("Fix it."),
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "high"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "part_of_tomorrow", "value": {"x": 1}},
            ],
        },
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "Hm.",
            "x_message": 1,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"a"}'},
                    "x_call": 1,
                },
                {"id": "c2", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [text("seen", x_part=1), text("more")], "x_result": 1},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
        {"role": "system", "content": "The person is away now."},
        {"role": "assistant", "content": "So.", "audio": {"id": "audio_1"}},
        {"role": "assistant", "content": None, "refusal": "I will not."},
        {"role": "user", "content": "Go on."},
    ],
}


def said(words: str, **more: Any) -> Json:
    return {"type": "output_text", "text": words, "annotations": [], **more}


RESPONSES: Json = {
    "model": "gpt-x",
    "stream": True,
    "instructions": "You are a coding agent.",
    "store": False,
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "max_output_tokens": 4000,
    "reasoning": {"effort": "xhigh", "summary": "auto"},
    "text": {"verbosity": "low"},
    "prompt_cache_key": "9f",
    "service_tier": "priority",
    "client_metadata": {"x": "1"},
    "truncation": "auto",
    "parallel_tool_calls": True,
    "context_management": [{"type": "compaction", "compact_threshold": 200000}],
    "x_new": {"deep": [1, {"a": "b"}]},
    "tool_choice": "auto",
    "tools": [
        {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA, "strict": True},
        {"type": "function", "name": "edit", "parameters": SCHEMA, "strict": False, "defer_loading": True},
        {
            "type": "custom",
            "name": "patch",
            "description": "Any text.",
            "format": {"type": "grammar", "syntax": "lark"},
        },
        {"type": "web_search", "external_web_access": True},
        {"type": "local_shell"},
        {"type": "computer"},
        {"type": "tool_search"},
        {"type": "image_generation", "output_format": "png"},
        {"type": "mcp", "server_label": "docs", "server_url": "https://mcp.example/sse", "require_approval": "never"},
        {"type": "namespace", "name": "later", "description": "Tools.", "tools": [{"type": "function", "name": "x"}]},
    ],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Work in /repo."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Fix it."},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "high"},
                {"type": "part_of_tomorrow", "value": {"x": 1}},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": "ENC-1"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "ENC-3"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [said("I look."), said("Twice.")],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "read", "arguments": '{"path":"a"}'},
        {"type": "function_call", "call_id": "c2", "name": "x", "arguments": "{}", "namespace": "later"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c3", "name": "patch", "input": "*** Begin"},
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [
                {"type": "input_text", "text": "seen"},
                {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
                {"type": "output_of_tomorrow", "value": 1},
            ],
        },
        {"type": "function_call_output", "call_id": "c2", "output": "ok", "x_result": 1},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "done"},
        {"type": "local_shell_call", "id": "ls_1", "call_id": "c4", "status": "completed", "action": {"type": "exec"}},
        {"type": "local_shell_call_output", "call_id": "c4", "output": "fine"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "computer_call", "id": "cu_1", "call_id": "c5", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c5", "output": {"type": "computer_screenshot", "file_id": "f"}},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "x", "arguments": "{}", "server_label": "docs"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC-2"},
        {"type": "item_of_tomorrow", "id": "x_1", "value": {"x": 1}},
        {"role": "system", "content": "The person is away now."},
        {"role": "assistant", "content": "So.", "phase": "final_answer"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
}

BODIES: dict[str, Json] = {"anthropic": ANTHROPIC, "openai-chat": CHAT, "openai-responses": RESPONSES}
