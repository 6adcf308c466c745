// What the whole page shares: who is here, where we are, the list of conversations, the theme.
import { signal } from "@preact/signals";
import type { AgentInfo, Info, Me } from "./api";
import { enc, get } from "./api";

export const me = signal<Me | null>(null);
export const needsKey = signal(false);
export const online = signal(true);
export const agents = signal<AgentInfo[]>([]);
export const menuOpen = signal(false);
export const paletteOpen = signal(false);
export const helpOpen = signal(false);
export const announcement = signal(""); // for screen readers

export interface Place { screen: string; id: string; query: URLSearchParams }

function parse(): Place {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [screen, ...rest] = (path || "chat").split("/");
  return { screen: screen || "chat", id: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query ?? "") };
}
export const place = signal<Place>(parse());
addEventListener("hashchange", () => { place.value = parse(); menuOpen.value = false; });
export const go = (path: string): void => { location.hash = `#/${path}`; };
export const link = (...parts: string[]): string => `#/${parts.map(enc).join("/")}`;

// --- conversations ---------------------------------------------------------------------------------------------------

export const conversations = signal<Info[]>([]);
export const conversationsMore = signal(false);
export const search = signal("");
export const listError = signal("");
let refreshing: AbortController | undefined, extending: AbortController | undefined;
let listed = ""; // the search whose results are shown

/** The screens beside the chat, and whether only admins see them. */
export const SCREENS: [string, string, boolean][] = [["traces", "Traces", false], ["usage", "Usage", true], ["agents", "Agents", false], ["gateway", "Gateway", true], ["knowledge", "Knowledge", true], ["mcp", "MCP servers", true], ["jobs", "Jobs", false], ["settings", "Settings", false]];
export const screens = (): [string, string][] => SCREENS.filter(([, , admin]) => !admin || me.value?.person.roles?.includes("admin")).map(([id, name]) => [id, name]);

export async function loadConversations(more = false): Promise<void> {
  const isOther = listed !== search.value;
  if (more && isOther) return;
  const controller = new AbortController();
  if (more) { extending?.abort(); extending = controller; }
  else { refreshing?.abort(); refreshing = controller; }
  if (isOther) extending?.abort(); // only then: a person who has scrolled to the end would wait for ever
  const before = more ? conversations.value[conversations.value.length - 1]?.id ?? "" : "";
  try {
    const page = await get<{ conversations: Info[]; more: boolean }>(
      `/api/conversations?limit=100&search=${enc(search.value)}&before=${enc(before)}`, controller.signal);
    const known = conversations.value;
    // The newest page is loaded again and again; what was loaded beyond it stays.
    const fresh = new Set(page.conversations.map((info) => info.id));
    const oldest = page.conversations[page.conversations.length - 1];
    const beyond = !more && page.more && oldest && known.length >= page.conversations.length && listed === search.value
      ? known.filter((info) => !fresh.has(info.id) && (info.updated_at ?? 0) <= (oldest.updated_at ?? 0)) : [];
    conversations.value = more ? [...known, ...page.conversations.filter((info) => !known.some((one) => one.id === info.id))] : [...page.conversations, ...beyond];
    if (more || !beyond.length) conversationsMore.value = page.more;
    listed = search.value;
    listError.value = "";
  } catch (error) {
    if (!controller.signal.aborted) listError.value = (error as Error).message;
  }
}

export async function loadAgents(): Promise<void> {
  agents.value = await get<AgentInfo[]>("/api/agents");
}

// --- theme -----------------------------------------------------------------------------------------------------------

export type Theme = "system" | "light" | "dark";
export const theme = signal<Theme>((localStorage.getItem("theme") as Theme | null) ?? "system");
const dark = matchMedia("(prefers-color-scheme: dark)");
export function applyTheme(): void {
  const shown = theme.value === "system" ? (dark.matches ? "dark" : "light") : theme.value;
  document.documentElement.dataset.theme = shown;
}
export function setTheme(next: Theme): void {
  theme.value = next;
  localStorage.setItem("theme", next);
  applyTheme();
}
dark.addEventListener("change", applyTheme);
applyTheme();
