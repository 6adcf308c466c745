"""What is wrong between agents: names that stand for nobody, circles, missing inputs, agents that nobody names.

Follows every agent to those that its keys and its words name. Runs nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..agent import Agent
from ..agent_files import Draft, Link, Links
from ..agent_files.links import WORKING
from ..errors import nearest
from ..facts import OLD
from ..inputs import is_required
from ..libraries import agent_names, is_library_name
from .problem import Problem, error, warning


def team_problems(
    drafts: Mapping[str, Draft], agents: Mapping[str, Agent], names: tuple[str, ...], default: str
) -> list[Problem]:
    """`agents` are those that could be made, with their libraries; `names` are all that there are."""
    team = _Team(drafts, agents, names)
    return [*team.unknown(), *team.selves(), *team.circles(), *team.facts(), *team.doubts(), *team.unused(default)]


class _Team:
    def __init__(self, drafts: Mapping[str, Draft], agents: Mapping[str, Agent], names: tuple[str, ...]) -> None:
        self._drafts, self._agents, self._names = drafts, agents, names
        self._read = {name: Links(draft) for name, draft in drafts.items()}
        self._links = {name: list(links) for name, links in self._read.items()}

    def _all(self) -> Iterator[Link]:
        for links in self._links.values():
            yield from links

    def _knows(self, name: str) -> bool:
        return name in self._names or (is_library_name(name) and name in agent_names())

    # --- errors -------------------------------------------------------------------------------------------------------

    def unknown(self) -> Iterator[Problem]:
        """Names in an author's words. Those in an agent's keys are refused when it is loaded."""
        for link in self._all():
            if link.relation in ("gets", "offers", "starts", "asks about") and not self._knows(link.to):
                known = (*self._names, *(agent_names() if is_library_name(link.to) else ()))
                who = f"agent {link.by.name!r} {link.relation} {link.to!r}"
                yield error(link.place(), f"{who}, and there is no such agent{nearest(link.to, known)}")

    def selves(self) -> Iterator[Problem]:
        for link in self._all():
            if link.to == link.by.name and link.relation not in ("is", "starts", "asks about"):
                yield error(link.place(), f"agent {link.by.name!r} {link.relation} itself; name another agent")

    def circles(self) -> Iterator[Problem]:
        """Every circle in which agents work for each other, once, with the path around it."""
        seen: set[frozenset[str]] = set()
        for path in self._paths():
            members = frozenset(link.by.name for link in path)
            if members in seen or all(link.relation == "is" for link in path):  # loading refuses an alias of itself
                continue
            seen.add(members)
            around = " -> ".join((*(link.by.name for link in path), path[0].by.name))
            yield error(path[0].place(), f"agents work for each other in a circle: {around}")

    def _paths(self) -> Iterator[list[Link]]:
        """Paths that end where they began, each from its first agent in the order of the files."""
        order = {name: place for place, name in enumerate(self._drafts)}
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
            for place, directive in links.directives:
                if directive.name == "Fact" and (told := self._wrong_fact(name, directive.arguments[0])):
                    yield error(place(), told)

    def _wrong_fact(self, by: str, fact: str) -> str:
        own = self._drafts[by].settings.facts
        if fact in own or fact.removesuffix(OLD) in own:
            return ""
        full = fact.removesuffix(OLD) if fact.count(".") > 1 else fact
        agent, _, short = full.rpartition(".")
        agent = agent or by
        if agent not in self._drafts:
            return "" if self._knows(agent) else f"the fact {fact!r} is of no agent{nearest(agent, self._names)}"
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
                        where, column = draft.place(path, template.text, at + suspect.column - 1)
                        told = f"column {column}: {{{{ .{suspect.word} }}}} is no directive and stays as it is"
                        yield warning(where, told + suspect.hint)

    def _idle_keys(self, draft: Draft) -> Iterator[Problem]:
        """Keys that nothing comes of."""
        settings = draft.settings
        kind = draft.kinds[0] if len(draft.kinds) == 1 else "prompt"
        document, who = draft.checker.document, f"agent {draft.name!r}"
        if kind in ("template", "function"):
            for key in ("listeners", "tools"):
                if getattr(settings, key):
                    where = document.where((*draft.path, key))
                    yield warning(where, f"{who} is a {kind}: no model is asked, so its {key} are never called")
        if settings.expands_output and not settings.recruits:
            where = document.where((*draft.path, "expands_output"))
            yield warning(where, f"{who} expands what it returns but may recruit nobody; name agents in 'recruits'")
        if settings.recruits and not settings.expands_output:
            where = document.where((*draft.path, "recruits"))
            yield warning(where, f"{who} recruits nobody unless it has 'expands_output: true'")

    def _missing_inputs(self, draft: Draft) -> Iterator[Problem]:
        own = set(self._inputs(draft.name))
        inherited = {name for link in self._all() if self._hands_on(link, draft.name) for name in self._given(link)}
        for place, directive in self._read[draft.name].directives:
            if directive.name == "Input" and directive.arguments and directive.arguments[0] not in own | inherited:
                field = directive.arguments[0]
                told = f"agent {draft.name!r} uses the input {field!r}, which it does not declare"
                yield warning(place(), told + nearest(field, tuple(sorted(own | inherited))))
        for link in self._links[draft.name]:
            if link.alone and link.to in self._agents and link.to != draft.name:
                fields = self._agents[link.to].inputs
                needed = [name for name, field in fields.items() if is_required(field)]
                missing = [name for name in needed if name not in own | inherited]
                if missing and len(fields) > 1:
                    told = f"agent {draft.name!r} gets {link.to!r} without {', '.join(missing)}, which it needs"
                    yield warning(link.place(), f"{told}; declare them, or write an input behind its name")

    def _hands_on(self, link: Link, to: str) -> bool:
        return link.to == to and (link.alone or link.relation in ("recruits", "is"))

    def _given(self, link: Link) -> tuple[str, ...]:
        return self._inputs(link.by.name)

    def _inputs(self, name: str) -> tuple[str, ...]:
        """What an agent takes; one that could not be made is taken by its file's word."""
        if name in self._agents:
            return tuple(self._agents[name].inputs)
        return tuple(self._drafts[name].settings.inputs) if name in self._drafts else ()

    def _recalls(self, name: str) -> bool:
        return any(directive.name == "Fact" for _, directive in self._read[name].directives)

    def unused(self, default: str) -> Iterator[Problem]:
        """People talk to agents with a prompt, and begin with those that let others work; any other one is there for an
        agent, and nobody names it."""
        if len(self._names) < 2:
            return
        named = {link.to for link in self._all() if link.to != link.by.name} | {default}
        for draft in self._drafts.values():
            leads = any(self._knows(link.to) for link in self._links[draft.name]) or self._recalls(draft.name)
            if draft.name not in named and not leads and draft.kinds != ("prompt",):
                what = draft.kinds[0] if draft.kinds else "agent"
                told = f"no agent names the {what} {draft.name!r}, and it is not the project's agent"
                yield warning(draft.where, told)
