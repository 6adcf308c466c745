// Watches a conversation: server-sent events with a cursor. It comes back by itself after the last entry that it has,
// and asks the server why, when a stream is refused: the conversation may be gone, or the session over.
import type { Entry, Event } from "./api";
import { ApiError, enc, get } from "./api";

export interface Watch { close(): void }
export interface Watcher {
  /** A stream begins: what was streamed of a reply that is not finished comes again. */
  opened(): void;
  entry(entry: Entry): void;
  live(event: Event): void;
  lost(): void;
  /** The conversation does not exist any more. */
  gone(): void;
}

const RETRY_MS = 500, RETRY_MS_MAX = 8_000;

export function watch(id: string, after: number, on: Watcher): Watch {
  let seq = after;
  let source: EventSource | undefined;
  let closed = false;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let wait = RETRY_MS;
  let lost = false; // `again` looks after it
  const open = () => {
    lost = false;
    source = new EventSource(`/api/conversations/${enc(id)}/events?after=${seq}`);
    source.addEventListener("entry", (message) => {
      const entry = JSON.parse((message as MessageEvent<string>).data) as Entry;
      seq = Math.max(seq, entry.seq);
      on.entry(entry);
    });
    source.addEventListener("live", (message) => on.live(JSON.parse((message as MessageEvent<string>).data) as Event));
    source.onopen = () => { wait = RETRY_MS; on.opened(); };
    source.onerror = lose;
  };
  const lose = () => {
    if (closed || lost) return;
    lost = true;
    retry = undefined;
    source?.close();
    void again();
  };
  const again = async () => {
    try {
      await get(`/api/conversations/${enc(id)}`);
    } catch (error) {
      if (closed) return;
      if (error instanceof ApiError && error.status === 404) return on.gone();
      if (error instanceof ApiError && error.status === 401) return; // the log-in takes over
      on.lost();
    }
    if (closed || !lost) return;
    retry = setTimeout(open, wait);
    wait = Math.min(wait * 2, RETRY_MS_MAX);
  };
  const hurry = () => { if (lost && retry !== undefined) { clearTimeout(retry); wait = RETRY_MS; open(); } };
  addEventListener("online", hurry);
  addEventListener("offline", lose);
  open();
  return { close() { closed = true; clearTimeout(retry); removeEventListener("online", hurry); removeEventListener("offline", lose); source?.close(); } };
}
