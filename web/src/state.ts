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
let loading: AbortController | undefined;

export async function loadConversations(more = false): Promise<void> {
  loading?.abort();
  const controller = (loading = new AbortController());
  const before = more ? conversations.value[conversations.value.length - 1]?.id ?? "" : "";
  try {
    const page = await get<{ conversations: Info[]; more: boolean }>(
      `/api/conversations?limit=100&search=${enc(search.value)}&before=${enc(before)}`, controller.signal);
    conversations.value = more ? [...conversations.value, ...page.conversations] : page.conversations;
    conversationsMore.value = page.more;
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
