// The HTTP API: requests, their errors as sentences, and the types of what it answers.

export interface Person { id: string; name?: string; roles?: string[]; origin?: string }
export interface Me { person: Person; needs_key: boolean; version: string; engine: string; engine_why: string; hints: string[] }
export interface Usage { tokens_in?: number; tokens_out?: number; cached_in?: number; [key: string]: number | undefined }
export interface Info {
  id: string; agent?: string; title?: string; state?: string; seq?: number; messages?: number;
  created_at?: number; updated_at?: number; person?: string; usage?: Usage;
}
export interface Question {
  id: string; kind: "approve" | "ask" | "choose"; text: string; options?: string[]; free_text?: boolean;
  call_id?: string; deadline?: number; person?: string;
}
export interface Shown { id: string; info: Info | null; agent: string; engine: string; seq: number; is_at_work: boolean; questions: Question[] }
export interface Part {
  type: "text" | "thinking" | "call" | "result" | "media" | "handoff" | "foreign";
  text?: string; id?: string; name?: string; arguments?: Record<string, unknown>; broken?: string; kind?: string;
  mime?: string; url?: string; call_id?: string; parts?: Part[]; is_error?: boolean; agent?: string; reason?: string;
  citations?: Citation[];
}
export interface Citation { url?: string; title?: string; quote?: string; path?: string; line?: number; page?: number; number?: number }
export interface Message { role: string; parts?: Part[]; id?: string; author?: string; shown?: boolean }
export interface Event { type: string; [key: string]: any }
export interface Entry { seq: number; at: number; event: Event }
export interface AgentInfo {
  name: string; description?: string; kind: string; engine: string; tools: string[]; plugins: string[];
  inputs: Record<string, unknown>; is_default: boolean; file?: string; problem?: string;
}
export interface TraceNode {
  kind: "conversation" | "turn" | "round" | "call" | "job" | "note"; name: string; id?: string; at?: number;
  ended_at?: number; seconds?: number; first_token_s?: number; usage?: Usage; cost?: string; unpriced?: number;
  agent?: string; model?: string; answered_by?: string; by?: string; input?: string; inputs?: Record<string, unknown>; prompt?: string;
  sent?: string; arguments?: Record<string, unknown>; thinking?: string; output?: string; error?: string;
  reason?: string; ran?: boolean; did?: string; outcome?: string; question?: string; answer?: string;
  facts?: Record<string, unknown>; children?: TraceNode[];
}

export class ApiError extends Error {
  constructor(readonly status: number, message: string) { super(message); }
}

/** Called when a request needs a log-in. */
export let onLoggedOut: () => void = () => {};
export function setOnLoggedOut(callback: () => void): void { onLoggedOut = callback; }

export async function api<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      signal,
      credentials: "same-origin",
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "The server cannot be reached. Is `rondel serve` running?");
  }
  if (response.ok) return (await response.json()) as T;
  let message = `The server answered with status ${response.status}.`;
  try {
    const told = await response.json();
    if (typeof told.error === "string") message = sentence(told.error);
  } catch { /* not JSON: keep the status */ }
  if (response.status === 401) onLoggedOut();
  throw new ApiError(response.status, message);
}

export function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

export const get = <T>(path: string, signal?: AbortSignal) => api<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body: unknown = undefined) => api<T>("POST", path, body);

export const enc = encodeURIComponent;
