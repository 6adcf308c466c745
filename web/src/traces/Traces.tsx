// Traces: a list with filters; then tree, waterfall and the selected step. Two turns can be compared.
import { useState } from "preact/hooks";
import type { Info, TraceNode } from "../api";
import { enc, get, post } from "../api";
import { changesText, count, dollars, moment, pretty, seconds, short } from "../format";
import { CopyButton, Empty, Loading, Screen, Table, useLoaded } from "../parts/common";
import { agents, go, me, place } from "../state";
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
  const [otherRun, setOtherRun] = useState("");
  const loaded = useLoaded<TraceNode>((signal) => get(`/api/conversations/${enc(id)}/trace`, signal), [id]);
  const runs = useLoaded<{ conversations: Info[] }>((signal) => get("/api/conversations?limit=100", signal), []);
  const second = useLoaded<TraceNode | null>((signal) => (otherRun ? get(`/api/conversations/${enc(otherRun)}/trace`, signal) : Promise.resolve(null)), [otherRun]);
  return (
    <Screen title="Trace" actions={<>
      <a href={`#/chat/${enc(id)}`}>Conversation</a>
      <a href={`/api/conversations/${enc(id)}/trace?format=html`} download>Page to share</a>
      <a href={`/api/conversations/${enc(id)}/trace?format=html&content=no`} download title="Steps, times, tokens and names; texts are replaced by their lengths">…without content</a>
      <button onClick={loaded.reload}>Refresh</button></>}>
      <Loading loaded={loaded}>{(root) => {
        const rows = flatten(root);
        const turns = rows.filter((row) => row.node.kind === "turn" && !row.path.includes("."));
        const start = selected || turns.find((row) => row.node.id === wanted)?.path || turns[turns.length - 1]?.path || "";
        const node = rows.find((row) => row.path === start)?.node;
        const compared = otherRun ? (second.data ? flatten(second.data) : []) : rows;
        const before = compared.find((row) => row.path === other)?.node;
        const turn = turns.find((row) => start === row.path || start.startsWith(`${row.path}.`));
        const rounds = turn ? rows.filter((row) => row.node.kind === "round" && row.path.startsWith(`${turn.path}.`) && row.path.split(".").length === 2) : [];
        const round = rounds.findIndex((row) => row.path === start) + 1;
        return (
          <>
            <div class="row wrap small soft">
              <span>{turns.length} {turns.length === 1 ? "turn" : "turns"}</span><span>{seconds(root.seconds)}</span>
              <span>{count(root.usage?.tokens_in)} in · {count(root.usage?.tokens_out)} out</span><span>{dollars(root.cost)}</span>
              {root.unpriced ? <span>{root.unpriced} calls without a price</span> : null}
            </div>
            <div class="trace-grid">
              <div class="card"><Waterfall root={root} selected={start} onSelect={setSelected} /></div>
              <div class="card stack">
                {node ? <StepDetails node={node} /> : <Empty>Select a step.</Empty>}
                {node && turn?.node.id && (node.kind === "turn" || round > 0) && <RoundRequest key={start} conversation={id} turn={turn.node.id} round={round || 1} />}
                {node && turn?.node.id && node.kind === "turn" && <RunAgain conversation={id} turn={turn.node.id} />}
                {node && (
                  <div class="row wrap small">
                    <label class="row">Compare with
                      <select value={other} aria-label="Step to compare with" onChange={(event) => setOther(event.currentTarget.value)}>
                        <option value="">nothing</option>
                        {compared.filter((row) => row.node.kind === node.kind && (otherRun || row.path !== start)).map((row) => <option value={row.path}>{titleOf(row.node)} {row.path}</option>)}
                      </select>
                    </label>
                    <label class="row">of
                      <select value={otherRun} aria-label="Conversation to compare with" onChange={(event) => { setOther(""); setOtherRun(event.currentTarget.value); }}>
                        <option value="">this conversation</option>
                        {(runs.data?.conversations ?? []).filter((info) => info.id !== id).map((info) => <option value={info.id}>{short(info.title || info.id, 60)}</option>)}
                      </select>
                    </label>
                  </div>
                )}
                {second.error && <div class="note error">{second.error}</div>}
                {node && before && <Difference before={before} after={node} />}
              </div>
            </div>
          </>
        );
      }}</Loading>
    </Screen>
  );
}

interface Piece { id: string; kind: string; role?: string; text?: string; tokens?: number; source?: string[]; depth?: number; enabled?: boolean }
interface Made { engine: string; dialect: string; is_own: boolean; before: Record<string, unknown>; after: Record<string, unknown>; assembly: { steps: { step: string; plugin?: string; changes?: { what: string; kind: string; id: string }[]; tokens?: number }[]; messages: { message: { role: string }; tokens?: number; pieces?: Piece[] }[] } }
const PATHS: Record<string, string> = { anthropic: "/v1/messages", "openai-chat": "/v1/chat/completions", "openai-responses": "/v1/responses" };

/** The request of a round in its dialect, and the tree of pieces that it was made of. Loaded when it is opened. */
function RoundRequest({ conversation, turn, round }: { conversation: string; turn: string; round: number }) {
  const [open, setOpen] = useState(false);
  const [shown, setShown] = useState<"after" | "before" | "difference">("after");
  const loaded = useLoaded<Made | null>((signal) => (open ? get(`/api/conversations/${enc(conversation)}/request?turn=${enc(turn)}&round=${round}`, signal) : Promise.resolve(null)), [open]);
  return (
    <details class="fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Request of round {round}</summary>
      <div class="fold-body">
        <Loading loaded={loaded}>{(made) => made && (
          <>
            <p class="small soft">Assembled again, as it would be made now{made.is_own ? "" : `; this engine has no wire format, so it is shown as ${made.dialect}`}.</p>
            <ol class="steps">{made.assembly.steps.filter((step) => step.plugin && step.changes?.length).map((step) => <li><span class="mono">{step.plugin}</span> <span class="soft small">{changesText(step.changes)}</span></li>)}</ol>
            <ul class="pieces">{made.assembly.messages.map((message) => (
              <li><b>{message.message.role}</b> <span class="soft small">{count(message.tokens)} tokens</span>
                <ul>{(message.pieces ?? []).map((piece) => <li style={{ marginInlineStart: `${(piece.depth ?? 0) * 12}px` }}><span class="mono">{piece.source?.join(" › ") || piece.id || piece.kind}</span> <span class="soft small">{short(piece.text ?? "", 80)}</span></li>)}</ul></li>
            ))}</ul>
            <div class="row wrap" role="group" aria-label="Which request">
              {(["after", "before", "difference"] as const).map((one) => <button class="tiny" aria-pressed={shown === one} onClick={() => setShown(one)}>{{ after: "As sent", before: "Before plugins", difference: "Difference" }[one]}</button>)}
              <CopyButton text={() => pretty(made.after)} label="Copy JSON" /><CopyButton text={() => curl(made)} label="Copy as curl" />
            </div>
            {shown === "difference" ? <DiffView before={pretty(made.before)} after={pretty(made.after)} /> : <pre class="block request">{pretty(made[shown]).slice(0, 200_000)}</pre>}
          </>
        )}</Loading>
      </div>
    </details>
  );
}

/** The same request to this gateway, which knows the provider's key. */
function curl(made: Made): string {
  const body = JSON.stringify({ ...made.after, model: made.engine.replace(":", ","), stream: false });
  const key = me.value?.needs_key ? ` \\\n  -H "Authorization: Bearer $RONDEL_KEY"` : "";
  return `curl ${location.origin}${PATHS[made.dialect] ?? PATHS["openai-chat"]} \\\n  -H 'content-type: application/json'${key} \\\n  -d '${body.replaceAll("'", "'\\''")}'`;
}

function RunAgain({ conversation, turn }: { conversation: string; turn: string }) {
  const [engine, setEngine] = useState("");
  const [error, setError] = useState("");
  const known = [...new Set(agents.value.map((one) => one.engine).filter(Boolean))];
  const run = async () => {
    try { const made = await post<{ id: string }>(`/api/conversations/${enc(conversation)}/rerun`, { turn, engine: engine.trim() }); go(`chat/${enc(made.id)}`); }
    catch (failure) { setError((failure as Error).message); }
  };
  return (
    <form class="stack tight" aria-label="Run again" onSubmit={(event) => { event.preventDefault(); void run(); }}>
      <div class="row wrap small"><label class="row grow">Run again with<input class="grow" list="engines" placeholder="the same engine, or provider:model" value={engine} onInput={(event) => setEngine(event.currentTarget.value)} /></label>
        <button>Run in a new conversation</button></div>
      <datalist id="engines">{known.map((one) => <option value={one} />)}</datalist>
      {error && <div class="note error" role="alert">{error}</div>}
    </form>
  );
}

function Difference({ before, after }: { before: TraceNode; after: TraceNode }) {
  const fields: (keyof TraceNode)[] = ["input", "prompt", "sent", "arguments", "output", "thinking", "error", "model"];
  const changed = fields.filter((field) => JSON.stringify(before[field] ?? "") !== JSON.stringify(after[field] ?? ""));
  if (!changed.length) return <p class="soft small">No differences.</p>;
  return (
    <div class="stack">{changed.map((field) => (
      <section><div class="soft small">{field}</div>
        <DiffView before={text(before[field])} after={text(after[field])} /></section>
    ))}</div>
  );
}

function DiffView({ before, after }: { before: string; after: string }) {
  return <pre class="block diff">{lines(before, after).map(([mark, line]) => <span class={mark === "+" ? "added" : mark === "-" ? "removed" : ""}>{mark} {line}{"\n"}</span>)}</pre>;
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
