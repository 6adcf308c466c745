"""Finds what is wrong between agents: unknown names, cycles, missing inputs, unused agents. Runs no agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...agent import Agent
from ...errors import nearest
from ...libraries import has_agent, names_for
from ...plugin import Plugin
from ...plugins.approval import ApprovalGate
from ...templates.facts import OLD
from ...text.inputs import is_required
from ...tool import Tool
from ..agents.drafts import Draft
from ..agents.links import WORKING, Link, Links
from .problem import Problem, error, warning


def team_problems(
    drafts: Mapping[str, Draft], agents: Mapping[str, Agent], names: tuple[str, ...], default: str
) -> list[Problem]:
    """Return the problems. `agents` are those that could be made, with library agents; `names` are all names."""
    team = _Team(drafts, agents, names)
    found = [*team.unknown(), *team.selves(), *team.circles(), *team.facts(), *team.doubts(), *team.unused(default)]
    return [*found, *team.rules()]


class _Team:
    def __init__(self, drafts: Mapping[str, Draft], agents: Mapping[str, Agent], names: tuple[str, ...]) -> None:
        self._drafts, self._agents, self._names = drafts, agents, names
        self._read = {name: Links(draft) for name, draft in drafts.items()}
        self._links = {name: list(links) for name, links in self._read.items()}

    def _all(self) -> Iterator[Link]:
        for links in self._links.values():
            yield from links

    def _knows(self, name: str) -> bool:
        return name in self._names or has_agent(name)

    def rules(self) -> Iterator[Problem]:
        """Approval rules for tools that no agent has, which would have no effect."""
        known: set[str] = set()
        for agent in self._agents.values():
            own = [tool for plugin in agent.plugins if isinstance(plugin, Plugin) for tool in plugin.tools]
            known |= {tool.name for tool in (*agent.tools, *own) if isinstance(tool, Tool)}
            known |= {name.replace(".", "_") for name in (*agent.tools, *agent.listeners) if isinstance(name, str)}
        for name, draft in self._drafts.items():
            for plugin in self._agents[name].plugins if name in self._agents else ():
                unknown = plugin.named - known if isinstance(plugin, ApprovalGate) else frozenset[str]()
                for tool in sorted(name for name in unknown if not name.startswith("mcp-")):  # a server has those
                    known.add(tool)  # report it once
                    hint = nearest(tool, tuple(known - {tool}))
                    yield warning(
                        draft.where, f"the approval rules for {tool!r} are for a tool that no agent has{hint}"
                    )

    # --- errors -------------------------------------------------------------------------------------------------------

    def unknown(self) -> Iterator[Problem]:
        """Unknown names in texts. Loading refuses those in an agent's keys."""
        for link in self._all():
            if link.relation in ("gets", "offers", "starts", "asks about") and not self._knows(link.to):
                known = (*self._names, *names_for(link.to))
                who = f"agent {link.by.name!r} {link.relation} {link.to!r}"
                yield error(link.where(), f"{who}, and there is no such agent{nearest(link.to, known)}")

    def selves(self) -> Iterator[Problem]:
        for link in self._all():
            if link.to == link.by.name and link.relation not in ("is", "starts", "asks about"):
                yield error(link.where(), f"agent {link.by.name!r} {link.relation} itself; name another agent")

    def circles(self) -> Iterator[Problem]:
        """Every cycle in which agents work for each other, once, with its path."""
        seen: set[frozenset[str]] = set()
        for path in self._paths():
            members = frozenset(link.by.name for link in path)
            if members in seen or all(link.relation == "is" for link in path):  # loading refuses an alias of itself
                continue
            seen.add(members)
            around = " -> ".join((*(link.by.name for link in path), path[0].by.name))
            yield error(path[0].where(), f"agents work for each other in a cycle: {around}")

    def _paths(self) -> Iterator[list[Link]]:
        """Yield the cycles, each from its first agent in the order of files."""
        order = {name: where for where, name in enumerate(self._drafts)}
        done: set[str] = set()
        for start in self._drafts:
            if start in done:
                continue
            path: list[Link] = []
            on_path = {start: 0}
            stack = [iter(self._working(start))]
            while stack:
                link = next(stack[-1], None)
                if link is None:
                    stack.pop()
                    left = path.pop().to if path else start
                    done.add(left)
                    del on_path[left]
                elif link.to in on_path:
                    circle = [*path[on_path[link.to] :], link]
                    first = min(range(len(circle)), key=lambda at: order[circle[at].by.name])
                    yield circle[first:] + circle[:first]
                elif link.to not in done:
                    path.append(link)
                    on_path[link.to] = len(path)
                    stack.append(iter(self._working(link.to)))

    def _working(self, name: str) -> list[Link]:
        return [
            link
            for link in self._links.get(name, ())
            if link.relation in WORKING and link.to in self._drafts and link.to != name
        ]

    def facts(self) -> Iterator[Problem]:
        for name, links in self._read.items():
            for where, directive in links.directives:
                if directive.name == "Fact" and (problem := self._wrong_fact(name, directive.first)):
                    yield error(where(), problem)

    def _wrong_fact(self, by: str, fact: str) -> str:
        own = self._drafts[by].settings.facts
        if fact in own or fact.removesuffix(OLD) in own:
            return ""
        full = fact.removesuffix(OLD) if fact.count(".") > 1 else fact
        agent, _, short = full.rpartition(".")
        agent = agent or by
        if agent not in self._drafts:
            return "" if self._knows(agent) else f"the fact {fact!r} belongs to no agent{nearest(agent, self._names)}"
        known = self._drafts[agent].settings.facts
        if short not in known:
            return f"agent {agent!r} learns no fact {short!r}{nearest(short, tuple(known))}"
        if known[short].scope == "local" and agent != by:
            return f"the fact {fact!r} is local: only agent {agent!r} sees it, and agent {by!r} does not"
        return ""

    # --- warnings -----------------------------------------------------------------------------------------------------

    def doubts(self) -> Iterator[Problem]:
        for draft in self._drafts.values():
            yield from self._idle_keys(draft)
            yield from self._missing_inputs(draft)
            for path, template in self._read[draft.name].templates:
                for suspect in template.suspects:
                    if suspect.hint:
                        at = sum(len(line) + 1 for line in template.text.split("\n")[: suspect.line - 1])
                        where, column = draft.locate(path, template.text, at + suspect.column - 1)
                        problem = f"column {column}: {{{{ .{suspect.word} }}}} is not a directive and stays as it is"
                        yield warning(where, problem + suspect.hint)

    def _idle_keys(self, draft: Draft) -> Iterator[Problem]:
        settings = draft.settings
        kind = draft.kinds[0] if len(draft.kinds) == 1 else "prompt"
        document, who = draft.checker.document, f"agent {draft.name!r}"
        if kind in ("template", "function"):
            for key in ("listeners", "handoffs", "tools"):
                if getattr(settings, key):
                    where = document.where((*draft.path, key))
                    yield warning(where, f"{who} is a {kind}: it asks no model, so its {key} are never used")
        if settings.expands_output and not settings.recruits:
            where = document.where((*draft.path, "expands_output"))
            yield warning(where, f"{who} expands its output but may not recruit any agent; list agents in 'recruits'")
        if settings.recruits and not settings.expands_output:
            where = document.where((*draft.path, "recruits"))
            yield warning(where, f"{who} has 'recruits', which only works with 'expands_output: true'")

    def _missing_inputs(self, draft: Draft) -> Iterator[Problem]:
        own = set(self._inputs(draft.name))
        inherited = {name for link in self._all() if _hands_on(link, draft.name) for name in self._inputs(link.by.name)}
        for where, directive in self._read[draft.name].directives:
            if directive.name == "Input" and directive.arguments and directive.first not in own | inherited:
                field = directive.first
                problem = f"agent {draft.name!r} uses the input {field!r}, which it does not declare"
                yield warning(where(), problem + nearest(field, tuple(sorted(own | inherited))))
        for link in self._links[draft.name]:
            if link.alone and link.to in self._agents and link.to != draft.name:
                fields = self._agents[link.to].inputs
                needed = [name for name, field in fields.items() if is_required(field)]
                missing = [name for name in needed if name not in own | inherited]
                if missing and len(fields) > 1:
                    problem = f"agent {draft.name!r} gets {link.to!r} without {', '.join(missing)}, which it needs"
                    yield warning(link.where(), f"{problem}; declare them, or write an input after its name")

    def _inputs(self, name: str) -> tuple[str, ...]:
        if name in self._agents:
            return tuple(self._agents[name].inputs)
        return tuple(self._drafts[name].settings.inputs) if name in self._drafts else ()

    def unused(self, default: str) -> Iterator[Problem]:
        """Agents that no agent names and that people would not talk to: those without a prompt that use no other
        agents."""
        if len(self._names) < 2:
            return
        named = {link.to for link in self._all() if link.to != link.by.name} | {default}
        for draft in self._drafts.values():
            recalls = any(directive.name == "Fact" for _, directive in self._read[draft.name].directives)
            leads = recalls or any(self._knows(link.to) for link in self._links[draft.name])
            if draft.name not in named and not leads and draft.kinds != ("prompt",):
                what = draft.kinds[0] if draft.kinds else "agent"
                problem = f"no agent names the {what} {draft.name!r}, and it is not the project's agent"
                yield warning(draft.where, problem)


def _hands_on(link: Link, to: str) -> bool:
    return link.to == to and (link.alone or link.relation in ("recruits", "is"))
