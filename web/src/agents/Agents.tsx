// Agents: what each is made of, and its prompt assembled step by step for a message that you type.
import { useState } from "preact/hooks";
import { enc, get, post } from "../api";
import type { AgentInfo, Message } from "../api";
import { messageText } from "../fold";
import { changesText, count, pretty } from "../format";
import { Empty, Loading, Screen, useLoaded } from "../parts/common";
import { go, me } from "../state";

interface Piece { text?: string; source?: string[]; caption?: string }
interface Change { what: string; kind: string; id: string; tokens?: number }
interface Step { step: string; progress: number; plugin?: string; entry?: string; changes?: Change[]; tokens?: number; messages?: number; notes?: string[] }
interface Assembly { agent: string; engine: string; steps: Step[]; messages: { message: Message; tokens?: number; pieces?: Piece[] }[]; tools: { name: string; description?: string }[]; tokens: Record<string, number> }
interface Problem { path: string; line: number | null; severity: string; message: string }

export function Agents({ id }: { id: string }) {
  const loaded = useLoaded<AgentInfo[]>((signal) => get("/api/agents", signal), []);
  const isAdmin = me.value?.person.roles?.includes("admin");
  const problems = useLoaded<Problem[]>((signal) => (isAdmin ? get("/api/problems", signal) : Promise.resolve([])), [isAdmin]);
  return (
    <Screen title="Agents">
      <Loading loaded={loaded}>{(agents) => {
        const chosen = agents.find((one) => one.name === id) ?? agents[0];
        if (!chosen) return <Empty>There are no agents. Add one in <code>agents/</code>.</Empty>;
        const found = (problems.data ?? []).filter((one) => chosen.file && one.path.endsWith(chosen.file));
        return (
          <div class="agents">
            <nav class="agent-list" aria-label="Agents">{agents.map((one) => (
              <a class="item" href={`#/agents/${enc(one.name)}`} aria-current={one === chosen ? "page" : undefined}><span class="cut grow">{one.name}</span>{one.problem && <span class="dot failed" role="img" aria-label="has a problem" />}</a>
            ))}</nav>
            <div class="stack">
              <div class="card stack">
                <div class="row wrap"><h2 class="grow">{chosen.name}</h2><button onClick={() => go(`chat?agent=${enc(chosen.name)}`)}>Chat</button></div>
                {chosen.description && <p>{chosen.description}</p>}
                {chosen.problem && <div class="note error">{chosen.problem}</div>}
                {found.map((one) => <div class={`note ${one.severity === "error" ? "error" : "warning"}`}>{one.path}{one.line && `:${one.line}`}: {one.message}</div>)}
                <div class="kv">
                  <span>Kind</span><b>{chosen.kind}</b><span>Engine</span><b>{chosen.engine}</b>
                  <span>Tools</span><b>{chosen.tools.join(", ") || "none"}</b><span>Plugins, in order</span><b>{chosen.plugins.join(", ")}</b>
                  {Object.keys(chosen.inputs).length > 0 && <><span>Inputs</span><b>{Object.keys(chosen.inputs).join(", ")}</b></>}
                  {chosen.file && <><span>File</span><b class="mono">{chosen.file}</b></>}
                </div>
              </div>
              <Preview key={chosen.name} agent={chosen.name} />
            </div>
          </div>
        );
      }}</Loading>
    </Screen>
  );
}

function Preview({ agent }: { agent: string }) {
  const [text, setText] = useState("Hello");
  const [made, setMade] = useState<Assembly>();
  const [error, setError] = useState("");
  const show = async () => {
    try { setMade(await post<Assembly>(`/api/agents/${enc(agent)}/prompt`, { text })); setError(""); }
    catch (failure) { setError((failure as Error).message); }
  };
  return (
    <section class="card stack" aria-label="Prompt preview">
      <h2>Prompt for a message</h2>
      <form class="row" onSubmit={(event) => { event.preventDefault(); void show(); }}>
        <input class="grow" value={text} aria-label="A message" onInput={(event) => setText(event.currentTarget.value)} dir="auto" />
        <button class="primary">Assemble</button>
      </form>
      <p class="soft small">No model is called. Numbers are tokens.</p>
      {error && <div class="note error" role="alert">{error}</div>}
      {made && (
        <>
          <div class="kv">{Object.entries(made.tokens).filter(([, value]) => value).map(([name, value]) => <><span>{name}</span><b>{count(value)}</b></>)}</div>
          <ol class="steps">{made.steps.map((step) => <li><span class="mono">{step.plugin || step.step}</span> <span class="soft small">{changesText(step.changes)} · {count(step.tokens)} tokens</span>{step.notes?.map((note) => <div class="note warning">{note}</div>)}</li>)}</ol>
          {made.messages.map((message) => (
            <div class="stack message"><div class="row small soft"><b>{message.message.role}</b><span class="grow cut">{message.pieces?.[0]?.source?.join(" › ")}</span><span>{count(message.tokens)} tokens</span></div>
              <pre class="block" dir="auto">{(message.pieces?.length ?? 0) > 1 ? message.pieces!.map((piece) => <span title={piece.source?.join(" › ")} class="piece">{piece.text}</span>) : messageText(message.message)}</pre></div>
          ))}
          {made.tools.length > 0 && <details class="fold"><summary>{made.tools.length} tools</summary><div class="fold-body"><pre class="block">{pretty(made.tools)}</pre></div></details>}
        </>
      )}
    </section>
  );
}
