// Watches a conversation: server-sent events with a cursor. The browser reconnects by itself with Last-Event-ID; the
// fold ignores entries that it has.
import type { Entry, Event } from "./api";
import { enc } from "./api";

export interface Watch { close(): void }

export function watch(id: string, after: number, on: { entry(entry: Entry): void; live(event: Event): void; state(online: boolean): void }): Watch {
  let seq = after;
  let source: EventSource | undefined;
  let closed = false;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let wait = 500;
  const open = () => {
    source = new EventSource(`/api/conversations/${enc(id)}/events?after=${seq}`);
    source.addEventListener("entry", (message) => {
      const entry = JSON.parse((message as MessageEvent<string>).data) as Entry;
      seq = Math.max(seq, entry.seq);
      on.entry(entry);
    });
    source.addEventListener("live", (message) => on.live(JSON.parse((message as MessageEvent<string>).data) as Event));
    source.onopen = () => { wait = 500; on.state(true); };
    source.onerror = () => {
      on.state(false);
      // A refused request (the server restarts, a session ended) closes the source for good: open another one.
      source?.close();
      if (!closed) { retry = setTimeout(open, wait); wait = Math.min(wait * 2, 8_000); }
    };
  };
  open();
  return { close() { closed = true; clearTimeout(retry); source?.close(); } };
}
