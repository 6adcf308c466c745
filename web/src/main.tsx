// The page: who is here, the frame, and the screen that the address names. Screens other than the chat load on demand.
import { render, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Me } from "./api";
import { ApiError, get, setOnLoggedOut } from "./api";
import { Chat } from "./chat/Chat";
import { Sidebar } from "./chat/Sidebar";
import { Login } from "./login/Login";
import { Failed, Empty } from "./parts/common";
import { announcement, go, helpOpen, loadAgents, me, menuOpen, needsKey, paletteOpen, place } from "./state";
// esbuild puts only the styles of what is imported here into the page's one style sheet.
import "./styles/tokens.css";
import "./styles/base.css";
import "./chat/chat.css";
import "./parts/palette.css";
import "./traces/traces.css";
import "./agents/agents.css";
import "./parts/work.css";
import "uplot/dist/uPlot.min.css";

type ScreenType = ComponentType<{ id: string }>;
const SCREENS: Record<string, () => Promise<ScreenType>> = {
  traces: async () => (await import("./traces/Traces")).Traces,
  gateway: async () => (await import("./gateway/Gateway")).Gateway as ScreenType,
  usage: async () => (await import("./usage/Usage")).Usage as ScreenType,
  agents: async () => (await import("./agents/Agents")).Agents,
  knowledge: async () => (await import("./knowledge/Knowledge")).Knowledge,
  mcp: async () => (await import("./mcp/Servers")).Servers as ScreenType,
  jobs: async () => (await import("./jobs/Jobs")).Jobs as ScreenType,
  settings: async () => (await import("./settings/Settings")).Settings as ScreenType,
};

function OnDemand({ name, id }: { name: string; id: string }) {
  const [screen, setScreen] = useState<{ name: string; of: ScreenType }>();
  const [error, setError] = useState("");
  useEffect(() => {
    const load = SCREENS[name];
    if (load) load().then((of) => setScreen({ name, of })).catch(() => setError("This screen could not be loaded. Reload the page."));
  }, [name]);
  if (error) return <Failed error={error} retry={() => location.reload()} />;
  if (screen?.name !== name) return <main class="screen" />;
  return <screen.of id={id} />;
}

function Extras() {
  const [parts, setParts] = useState<{ Palette: ComponentType; Help: ComponentType }>();
  useEffect(() => { if ((paletteOpen.value || helpOpen.value) && !parts) void import("./parts/Palette").then(setParts); }, [paletteOpen.value, helpOpen.value]);
  if (!parts) return null;
  return <>{paletteOpen.value && <parts.Palette />}{helpOpen.value && <parts.Help />}</>;
}

function keys(event: KeyboardEvent): void {
  const typing = event.target instanceof HTMLElement && (event.target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName));
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); paletteOpen.value = !paletteOpen.value; }
  else if (event.altKey && event.code === "KeyN") { event.preventDefault(); go("chat"); }
  else if (event.key === "Escape" && !typing) { const open = [menuOpen, paletteOpen, helpOpen].find((one) => one.value); if (open) open.value = false; else dispatchEvent(new Event("rondel:stop")); }
  else if (!typing && event.key === "?") helpOpen.value = true;
  else if (!typing && (event.key === "j" || event.key === "k") && !event.ctrlKey && !event.metaKey) move(event.key === "j" ? 1 : -1);
}

function move(step: number): void {
  const turns = [...document.querySelectorAll<HTMLElement>("article.turn")];
  const at = turns.findIndex((turn) => turn.getBoundingClientRect().bottom > 80);
  const next = turns[Math.max(0, Math.min(turns.length - 1, (at < 0 ? turns.length - 1 : at) + step))];
  if (next) { next.tabIndex = -1; next.focus(); next.scrollIntoView({ block: "start" }); }
}

function App() {
  const [error, setError] = useState("");
  const start = (found: Me) => { me.value = found; needsKey.value = false; setError(""); void loadAgents().catch((failure: Error) => setError(failure.message)); };
  const load = () => get<Me>("/api/me").then(start).catch((failure: Error) => { if (!(failure instanceof ApiError && failure.status === 401)) setError(failure.message); });
  useEffect(() => {
    setOnLoggedOut(() => { needsKey.value = true; me.value = null; });
    void load();
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const here = place.value;
  if (needsKey.value) return <Login onDone={start} />;
  if (!me.value) return error ? <Failed error={error} retry={() => void load()} /> : null;
  return (
    <div class="shell">
      <Sidebar />
      {menuOpen.value && <button class="scrim" aria-label="Close the menu" onClick={() => { menuOpen.value = false; }} />}
      {here.screen === "chat" ? <Chat id={here.id} /> : SCREENS[here.screen] ? <OnDemand name={here.screen} id={here.id} /> : <main class="screen"><Empty action={<a href="#/chat">To the chat</a>}>There is no such screen.</Empty></main>}
      <Extras />
      <div class="visually-hidden" aria-live="polite">{announcement.value}</div>
    </div>
  );
}

const root = document.getElementById("app");
if (root) render(<App />, root);
