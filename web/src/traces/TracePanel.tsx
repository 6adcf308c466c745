// A trace as a tree and a waterfall together, and the selected step in detail.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { TraceNode } from "../api";
import { enc, get } from "../api";
import { clock, count, dollars, pretty, seconds } from "../format";
import { CopyButton, Loading, useLoaded } from "../parts/common";

interface Row { node: TraceNode; depth: number; path: string }

export function flatten(root: TraceNode): Row[] {
  const rows: Row[] = [];
  const visit = (node: TraceNode, depth: number, path: string) => {
    rows.push({ node, depth, path });
    (node.children ?? []).forEach((child, index) => visit(child, depth + 1, `${path}.${index}`));
  };
  (root.children ?? []).forEach((child, index) => visit(child, 0, String(index)));
  return rows;
}

export const titleOf = (node: TraceNode): string => {
  if (node.kind === "turn") return `turn · ${node.name}`;
  if (node.kind === "round") return node.did || `round · ${node.model || node.answered_by || node.name}`;
  return node.kind === "note" ? `${node.name}` : node.name;
};

const endOf = (node: TraceNode): number => node.ended_at ?? (node.at ?? 0) + (node.seconds ?? 0);

/** Where a time is, in per cent. The pauses between turns take no room: people think longer than models work. */
function timeline(rows: Row[]): (at: number, path: string) => number {
  const offsets = new Map<string, number>(); // of each turn: what is subtracted from its times
  let worked = 0;
  for (const { node, path } of rows) {
    if (path.includes(".") || !node.at) continue;
    const end = Math.max(...rows.filter((row) => row.path === path || row.path.startsWith(`${path}.`)).map((row) => endOf(row.node)));
    offsets.set(path, node.at - worked);
    worked += Math.max(0, end - node.at);
  }
  return (at, path) => (Math.max(0, at - (offsets.get(path.split(".")[0]!) ?? at)) / Math.max(worked, 0.001)) * 100;
}

export function Waterfall({ root, selected, onSelect }: { root: TraceNode; selected: string; onSelect: (path: string) => void }) {
  const rows = useMemo(() => flatten(root), [root]);
  const at = useMemo(() => timeline(rows), [rows]);
  return (
    <div role="tree" aria-label="Steps">
      {rows.map(({ node, depth, path }) => {
        const left = node.at ? Math.min(at(node.at, path), 99) : 0;
        const width = node.at ? Math.max(at(endOf(node), path) - left, 1) : 0;
        return (
          <button class={`span ${selected === path ? "on" : ""}`} role="treeitem" aria-level={depth + 1} aria-selected={selected === path} onClick={() => onSelect(path)}>
            <span class={`cut ${node.error || node.outcome === "failed" ? "bad" : node.kind === "note" ? "soft" : ""}`} style={{ paddingInlineStart: `${depth * 12}px` }}>{titleOf(node)}</span>
            <span class="bar" title={seconds(node.seconds)}>{width > 0 && <i class={node.kind === "call" ? "call" : ""} style={{ left: `${left}%`, width: `${Math.min(width, 100 - left)}%` }} />}</span>
          </button>
        );
      })}
    </div>
  );
}

export function StepDetails({ node }: { node: TraceNode }) {
  const facts: [string, string][] = [
    ["Started", node.at ? clock(node.at) : ""], ["Took", seconds(node.seconds)], ["First token", seconds(node.first_token_s)],
    ["Tokens in", node.usage?.tokens_in ? count(node.usage.tokens_in) : ""], ["Tokens out", node.usage?.tokens_out ? count(node.usage.tokens_out) : ""],
    ["Cost", dollars(node.cost)], ["Engine", node.kind === "round" ? node.name : ""], ["Answered by", node.answered_by ?? ""],
    ["Model", node.model ?? ""], ["Agent", node.agent ?? ""], ["Outcome", node.outcome ?? ""], ["By", node.by ?? ""],
  ];
  const texts: [string, string][] = [
    ["Error", node.error ?? ""], ["Reason", node.reason ?? ""], ["Question", node.question ?? ""], ["Answer", node.answer ?? ""],
    ["Input", node.input ?? ""], ["Inputs", node.inputs && Object.keys(node.inputs).length ? pretty(node.inputs) : ""],
    ["Instructions as written", node.prompt ?? ""], ["Instructions as sent", node.sent ?? ""],
    ["Arguments", node.arguments && Object.keys(node.arguments).length ? pretty(node.arguments) : ""],
    ["Thinking", node.thinking ?? ""], ["Output", node.output ?? ""], ["Facts", node.facts && Object.keys(node.facts).length ? pretty(node.facts) : ""],
  ];
  return (
    <div class="stack">
      <h2>{titleOf(node)}</h2>
      <div class="kv">{facts.filter(([, value]) => value).map(([name, value]) => <><span>{name}</span><b>{value}</b></>)}</div>
      {texts.filter(([, text]) => text).map(([name, text]) => (
        <section><div class="row"><span class="soft small grow">{name}</span><CopyButton text={() => text} /></div><pre class="block" dir="auto">{text.slice(0, 60_000)}</pre></section>
      ))}
    </div>
  );
}

/** The panel beside a chat: the steps of one turn. */
export function TracePanel({ conversation, turn, version, onClose }: { conversation: string; turn: string; version: number; onClose: () => void }) {
  const [selected, setSelected] = useState("0");
  const loaded = useLoaded<TraceNode>((signal) => get(`/api/conversations/${enc(conversation)}/trace?turn=${enc(turn)}`, signal), [conversation, turn, Math.floor(version / 60)]);
  useEffect(() => setSelected("0"), [turn]);
  return (
    <div class="stack">
      <div class="row"><h2 class="grow">Trace</h2><a href={`#/traces/${enc(conversation)}?turn=${enc(turn)}`}>Open</a><button class="plain" aria-label="Close the trace" onClick={onClose}>×</button></div>
      <Loading loaded={loaded}>{(root) => {
        const node = flatten(root).find((row) => row.path === selected)?.node;
        return <><Waterfall root={root} selected={selected} onSelect={setSelected} />{node && <StepDetails node={node} />}</>;
      }}</Loading>
    </div>
  );
}
