// One open conversation: loads its entries, watches it, and sends. The fold is mutable; `version` says that it changed.
import { signal } from "@preact/signals";
import type { Entry, Info, Shown } from "../api";
import { ApiError, enc, get, post } from "../api";
import type { Watch } from "../events";
import { watch } from "../events";
import { applyEntry, applyLive, dropLive, empty, isWorking } from "../fold";
import { announcement, conversations, go, loadConversations, online } from "../state";

const DRAW_MS = 50; // between two drawings

export class Talk {
  readonly version = signal(0);
  readonly error = signal("");
  readonly loaded = signal(false);
  readonly gone = signal(false);
  readonly unopened = signal(false); // it could not be loaded: `error` says why
  readonly agent = signal("");
  readonly engine = signal("");
  readonly sending = signal(false);
  /** Messages that wait for the running turn to end, by their id. The journal has them when their turn begins. */
  readonly waiting = signal<ReadonlyMap<string, string>>(new Map());
  fold = empty();
  private watching?: Watch;
  private timer?: ReturnType<typeof setTimeout>;
  private drawn = 0;
  private closed = false;

  constructor(readonly id: string) {}

  async open(): Promise<void> {
    this.error.value = "";
    this.unopened.value = false;
    try {
      const shown = await get<Shown>(`/api/conversations/${enc(this.id)}`);
      this.agent.value = shown.agent;
      this.engine.value = shown.engine;
      this.fold.title = shown.info?.title ?? "";
      for (let more = true; more && !this.closed; ) {
        const page = await get<{ entries: Entry[]; more: boolean }>(`/api/conversations/${enc(this.id)}/entries?after=${this.fold.seq}`);
        for (const entry of page.entries) applyEntry(this.fold, entry);
        more = page.more;
      }
      for (const question of shown.questions) this.fold.questions.set(question.id, question);
      if (this.closed) return;
      this.loaded.value = true;
      this.changed();
      this.watching = watch(this.id, this.fold.seq, {
        opened: () => {
          if (!online.value) void loadConversations();
          online.value = true;
          dropLive(this.fold);
          this.changed();
        },
        entry: (entry) => { applyEntry(this.fold, entry); this.noteEntry(entry); this.changed(); },
        live: (event) => { applyLive(this.fold, event); this.changed(); },
        lost: () => { online.value = false; },
        gone: () => { this.gone.value = true; online.value = true; void loadConversations(); },
      });
    } catch (error) {
      this.gone.value = error instanceof ApiError && error.status === 404;
      this.error.value = (error as Error).message;
      this.unopened.value = !this.gone.value;
    }
  }

  close(): void {
    this.closed = true;
    this.watching?.close();
    clearTimeout(this.timer);
  }

  /** Draws with the next frame, but not more often than people can read, however fast tokens come. */
  private changed(): void {
    if (this.timer) return;
    this.timer = setTimeout(() => {
      requestAnimationFrame(() => { this.timer = undefined; this.drawn = performance.now(); this.version.value++; });
    }, Math.max(0, this.drawn + DRAW_MS - performance.now()));
  }

  private noteEntry(entry: Entry): void {
    const event = entry.event;
    if (event.type === "message_added" && this.waiting.value.has(event.message?.id)) this.waiting.value = new Map([...this.waiting.value].filter(([id]) => id !== event.message.id));
    if (event.type === "turn_started" || event.type === "turn_finished" || event.type === "call_held") void loadConversations();
    if (event.type === "round_finished") announcement.value = (event.message?.parts ?? []).filter((p: { type: string }) => p.type === "text").map((p: { text: string }) => p.text).join(" ").slice(0, 2_000);
    if (event.type === "call_held") announcement.value = `Waiting for you: ${event.question.text}`.slice(0, 500);
  }

  get isWorking(): boolean { return isWorking(this.fold); }

  /** Runs a request, and shows its error in place. True if it worked. */
  async run(doing: () => Promise<unknown>): Promise<boolean> {
    this.error.value = "";
    this.sending.value = true;
    try {
      await doing();
      return true;
    } catch (error) {
      this.error.value = (error as Error).message;
      return false;
    } finally {
      this.sending.value = false;
    }
  }

  private path(rest: string): string { return `/api/conversations/${enc(this.id)}/${rest}`; }
  send(text: string, attachments: { name: string; data: string }[], mode: "queue" | "steer"): Promise<boolean> {
    const id = newId();
    const waits = mode === "queue" && this.isWorking;
    return this.run(async () => {
      if (waits) this.waiting.value = new Map([...this.waiting.value, [id, text || attachments.map((file) => file.name).join(", ")]]);
      try {
        await post(this.path("messages"), { text, attachments, mode, id });
      } catch (error) {
        this.waiting.value = new Map([...this.waiting.value].filter(([other]) => other !== id));
        throw error;
      }
    });
  }
  stop(): Promise<boolean> { return this.run(() => post(this.path("stop"))); }
  regenerate(): Promise<boolean> { return this.run(() => post(this.path("regenerate"))); }
  edit(text: string): Promise<boolean> { return this.run(() => post(this.path("edit"), { text })); }
  resume(): Promise<boolean> { return this.run(() => post(this.path("resume"))); }
  answer(question: string, text: string): Promise<boolean> { return this.run(() => post(this.path(`questions/${enc(question)}`), { text })); }
  fork(message: string): Promise<boolean> {
    return this.run(async () => { const made = await post<{ id: string }>(this.path("fork"), { message }); go(`chat/${enc(made.id)}`); });
  }
}

/** An id for a message, so that sending it twice adds it once. Pages without HTTPS have no `crypto.randomUUID`. */
const newId = (): string => `page-${[...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;

export async function newConversation(agent = ""): Promise<string> {
  const made = await post<{ id: string }>("/api/conversations", { agent });
  return made.id;
}

export const infoOf = (id: string): Info | undefined => conversations.value.find((info) => info.id === id);
