// Traces: a list with filters; then tree, waterfall and the selected step. Two turns can be compared.
import { useState } from "preact/hooks";
import type { Info, TraceNode } from "../api";
import { enc, get } from "../api";
import { count, dollars, moment, seconds } from "../format";
import { Empty, Loading, Screen, Table, useLoaded } from "../parts/common";
import { go, place } from "../state";
import { flatten, StepDetails, titleOf, Waterfall } from "./TracePanel";

export function Traces({ id }: { id: string }) {
  return id ? <OneTrace key={id} id={id} /> : <List />;
}

function List() {
  const [filter, setFilter] = useState("");
  const [state, setState] = useState("");
  const loaded = useLoaded<{ conversations: Info[] }>((signal) => get("/api/conversations?limit=200", signal), []);
  return (
    <Screen title="Traces" actions={<>
      <input type="search" placeholder="Filter" aria-label="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
      <select aria-label="State" value={state} onChange={(event) => setState(event.currentTarget.value)}>
        {["", "done", "failed", "waiting", "limited", "stopped", "working", "interrupted"].map((one) => <option value={one}>{one || "all states"}</option>)}
      </select>
      <button onClick={loaded.reload}>Refresh</button></>}>
      <Loading loaded={loaded}>{({ conversations }) => conversations.length ? (
        <Table label="Conversations" rows={conversations.filter((info) => !state || info.state === state)} filter={filter} onOpen={(info) => go(`traces/${enc(info.id)}`)} columns={[
          { name: "When", of: (info) => info.updated_at, show: (info) => <span class="when">{moment(info.updated_at ?? 0)}</span> },
          { name: "About", of: (info) => info.title },
          { name: "Agent", of: (info) => info.agent },
          { name: "State", of: (info) => info.state, show: (info) => <span class={info.state === "failed" ? "bad" : info.state === "waiting" ? "warn" : ""}>{info.state}</span> },
          { name: "Messages", of: (info) => info.messages, numeric: true },
          { name: "Tokens in", of: (info) => info.usage?.tokens_in ?? 0, show: (info) => count(info.usage?.tokens_in), numeric: true },
          { name: "Tokens out", of: (info) => info.usage?.tokens_out ?? 0, show: (info) => count(info.usage?.tokens_out), numeric: true },
        ]} />) : <Empty action={<button onClick={() => go("chat")}>Start a conversation</button>}>There are no traces yet. Every conversation leaves one.</Empty>}</Loading>
    </Screen>
  );
}

function OneTrace({ id }: { id: string }) {
  const wanted = place.value.query.get("turn") ?? "";
  const [selected, setSelected] = useState("");
  const [other, setOther] = useState("");
  const loaded = useLoaded<TraceNode>((signal) => get(`/api/conversations/${enc(id)}/trace`, signal), [id]);
  return (
    <Screen title="Trace" actions={<>
      <a href={`#/chat/${enc(id)}`}>Conversation</a>
      <a href={`/api/conversations/${enc(id)}/trace?format=html`} download>Page to share</a>
      <button onClick={loaded.reload}>Refresh</button></>}>
      <Loading loaded={loaded}>{(root) => {
        const rows = flatten(root);
        const turns = rows.filter((row) => row.node.kind === "turn" && !row.path.includes("."));
        const start = selected || turns.find((row) => row.node.id === wanted)?.path || turns[turns.length - 1]?.path || "";
        const node = rows.find((row) => row.path === start)?.node;
        const second = rows.find((row) => row.path === other)?.node;
        return (
          <>
            <div class="row wrap small soft">
              <span>{turns.length} turns</span><span>{seconds(root.seconds)}</span>
              <span>{count(root.usage?.tokens_in)} in · {count(root.usage?.tokens_out)} out</span><span>{dollars(root.cost)}</span>
              {root.unpriced ? <span>{root.unpriced} calls without a price</span> : null}
            </div>
            <div class="trace-grid">
              <div class="card"><Waterfall root={root} selected={start} onSelect={setSelected} /></div>
              <div class="card">
                {node ? <StepDetails node={node} /> : <Empty>Select a step.</Empty>}
                {node && (
                  <label class="row small">Compare with
                    <select value={other} onChange={(event) => setOther(event.currentTarget.value)}>
                      <option value="">nothing</option>
                      {rows.filter((row) => row.node.kind === node.kind && row.path !== start).map((row) => <option value={row.path}>{titleOf(row.node)} {row.path}</option>)}
                    </select>
                  </label>
                )}
                {node && second && <Difference before={second} after={node} />}
              </div>
            </div>
          </>
        );
      }}</Loading>
    </Screen>
  );
}

function Difference({ before, after }: { before: TraceNode; after: TraceNode }) {
  const fields: (keyof TraceNode)[] = ["input", "prompt", "sent", "arguments", "output", "thinking", "error", "model"];
  const changed = fields.filter((field) => JSON.stringify(before[field] ?? "") !== JSON.stringify(after[field] ?? ""));
  if (!changed.length) return <p class="soft small">No differences.</p>;
  return (
    <div class="stack">{changed.map((field) => (
      <section><div class="soft small">{field}</div>
        <pre class="block diff">{lines(text(before[field]), text(after[field])).map(([mark, line]) => <span class={mark === "+" ? "added" : mark === "-" ? "removed" : ""}>{mark} {line}{"\n"}</span>)}</pre></section>
    ))}</div>
  );
}

const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value ?? "", null, 2));

/** A line diff by longest common subsequence; long texts are compared by their first lines. */
export function lines(before: string, after: string): [string, string][] {
  const a = before.split("\n").slice(0, 600), b = after.split("\n").slice(0, 600);
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) table[i]![j] = a[i] === b[j] ? table[i + 1]![j + 1]! + 1 : Math.max(table[i + 1]![j]!, table[i]![j + 1]!);
  const made: [string, string][] = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { made.push([" ", a[i]!]); i++; j++; }
    else if (j < b.length && (i >= a.length || table[i]![j + 1]! >= table[i + 1]![j]!)) made.push(["+", b[j++]!]);
    else made.push(["-", a[i++]!]);
  }
  return made;
}
