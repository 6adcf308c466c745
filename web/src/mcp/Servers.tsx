// MCP servers: how each is, what it offers, connect again, log in. Servers are added in files, never from a page.
import { useState } from "preact/hooks";
import { api, enc, get, post } from "../api";
import { count, pretty, short } from "../format";
import { Empty, Loading, Screen, useLoaded } from "../parts/common";
import { useRefresh, WorkView, type Work } from "../parts/work";

interface Server {
  name: string; type: string; address: string; state: string; reason: string; server: string; protocol: string; tools: number; prompts: number; resources: number;
  problems: string[]; required: boolean; approval: string; has_login: boolean; login?: Work | null;
}
interface Tool { name: string; description: string; schema: Record<string, unknown>; read_only: boolean; approval: string }

const STATES: Record<string, [string, string]> = { ready: ["Connected", ""], connecting: ["Connecting…", "soft"], down: ["Not available", "bad"], login: ["Needs a log-in", "warn"], provider: ["Used by the provider", "soft"] };
const APPROVALS: Record<string, string> = { new: "", approved: "approved", changed: "changed since it was approved" };

export function Servers() {
  const loaded = useLoaded<Server[]>((signal) => get("/api/mcp", signal), []);
  const [error, setError] = useState("");
  useRefresh(loaded.reload, !!loaded.data?.some((one) => one.state === "connecting" || one.login?.state === "running"));
  const run = async (method: string, path: string) => {
    try { await (method === "POST" ? post(path) : api(method, path)); setError(""); } catch (failure) { setError((failure as Error).message); }
    loaded.reload();
  };
  return (
    <Screen title="MCP servers">
      {error && <div class="note error" role="alert">{error}</div>}
      <Loading loaded={loaded}>{(servers) => servers.length ? (
        <div class="cards wide">{servers.map((server) => <ServerCard key={server.name} server={server} run={run} />)}</div>
      ) : <Empty>There are no MCP servers. Add one to <code>rondel.toml</code> as <code>[mcp.NAME]</code> with a command or a url, or use a <code>.mcp.json</code>, and start <code>rondel serve</code> again.</Empty>}</Loading>
    </Screen>
  );
}

function ServerCard({ server, run }: { server: Server; run: (method: string, path: string) => Promise<void> }) {
  const path = `/api/mcp/${enc(server.name)}`;
  const [said, tone] = STATES[server.state] ?? [server.state, ""];
  const logging = server.login?.state === "running";
  return (
    <section class="card stack tight" aria-label={server.name}>
      <div class="row wrap"><h2 class="grow cut">{server.name}</h2><span class={`row ${tone}`}><span class={`dot ${server.state === "ready" ? "" : server.state === "down" ? "failed" : server.state === "login" ? "waiting" : "idle"}`} />{said}</span></div>
      {server.reason && server.state !== "ready" && <div class={`note ${server.state === "down" ? "error" : ""}`}>{server.reason}</div>}
      <div class="kv">
        <span>{server.type === "stdio" ? "Program" : "Address"}</span><b class="mono wrap-any">{server.address}</b>
        {server.server && <><span>Calls itself</span><b>{server.server}{server.protocol ? `, protocol ${server.protocol}` : ""}</b></>}
        <span>Offers</span><b>{[[server.tools, "tool"], [server.prompts, "prompt"], [server.resources, "resource"]].filter(([n]) => n).map(([n, what]) => `${count(n as number)} ${what}${n === 1 ? "" : "s"}`).join(", ") || "nothing now"}</b>
        <span>Calls</span><b>{server.approval === "auto" ? "run without asking" : "ask you first"}{server.required ? "; turns fail without it" : ""}</b>
      </div>
      {server.problems.map((problem) => <div class="note warning">{problem}</div>)}
      {logging && server.login?.link && /^https?:/i.test(server.login.link) && <div class="note warning">Log in with your browser, then come back here. <a href={server.login.link} target="_blank" rel="noopener noreferrer">Open the log-in</a></div>}
      <WorkView work={logging && server.login ? { ...server.login, step: "waiting for your log-in" } : server.login} name={`Log-in to ${server.name}`} onCancel={() => void run("POST", `${path}/cancel`)} />
      <div class="row wrap">
        {server.state !== "provider" && <button onClick={() => void run("POST", `${path}/reconnect`)}>{server.state === "ready" ? "Reconnect" : "Try again now"}</button>}
        {server.type === "http" && !logging && (server.state === "login" || !server.has_login) && server.state !== "ready" && <button class={server.state === "login" ? "primary" : ""} onClick={() => void run("POST", `${path}/login`)}>Log in</button>}
        {server.has_login && <button onClick={() => void run("DELETE", `${path}/login`)}>Log out</button>}
      </div>
      {server.tools > 0 && <Tools server={server.name} key={server.tools} />}
    </section>
  );
}

function Tools({ server }: { server: string }) {
  const [open, setOpen] = useState(false);
  const loaded = useLoaded<Tool[]>((signal) => (open ? get(`/api/mcp/${enc(server)}/tools`, signal) : Promise.resolve([])), [server, open]);
  return (
    <details class="fold" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Tools</summary>
      <div class="fold-body">
        <Loading loaded={loaded}>{(tools) => <>{tools.map((tool) => (
          <details class="tool"><summary><b class="mono">{tool.name}</b> <span class="soft small">{[tool.read_only ? "only reads, it says" : "", short(tool.description, 160)].filter(Boolean).join(" · ")}</span> <span class={tool.approval === "changed" ? "warn small" : "soft small"}>{APPROVALS[tool.approval]}</span></summary>
            <p class="small" dir="auto">{tool.description}</p><pre class="block">{pretty(tool.schema)}</pre></details>
        ))}</>}</Loading>
      </div>
    </details>
  );
}
