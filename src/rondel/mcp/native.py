"""Servers that a model's provider connects to itself, in the form of each dialect. Pure."""

from __future__ import annotations

from typing import Any

from ..values import ToolSpec
from .spec import ServerSpec

Form = dict[str, Any]
_BEARER = "bearer "


def native_tool(spec: ServerSpec) -> ToolSpec | None:
    """Return the server as a tool of the provider, in the form of each dialect that supports it. None if no dialect
    does, or if a person has to approve its calls, because providers do not ask."""
    if spec.native is None or not spec.is_remote:
        return None
    forms = {"openai-responses": spec.native, "anthropic": _anthropic(spec, spec.native)}
    return ToolSpec(spec.native["server_label"], opaque={name: form for name, form in forms.items() if form})


def _anthropic(spec: ServerSpec, native: Form) -> Form | None:
    """Return the form for Anthropic, which takes only https addresses, and no header except a bearer token. Its dialect
    moves `mcp_server` into the request's list of servers."""
    headers = {name.lower(): value for name, value in spec.headers.items()}
    login = headers.pop("authorization", "")
    if headers or not spec.url.lower().startswith("https://") or (login and not login.lower().startswith(_BEARER)):
        return None
    name = native["server_label"]
    server: Form = {"type": "url", "url": spec.url, "name": name}
    if login:
        server["authorization_token"] = login[len(_BEARER) :].strip()
    form: Form = {"type": "mcp_toolset", "mcp_server_name": name, "mcp_server": server}
    if spec.allowed_tools is not None:
        form["default_config"] = {"enabled": False}
        form["configs"] = {tool: {"enabled": True} for tool in spec.allowed_tools}
    return form
