// Folds a conversation's entries and live events into turns, in the order in which they are shown. Pure: knows no page.
import type { Citation, Entry, Event, Message, Part, Question, Usage } from "./api";

export interface CallView {
  kind: "call"; id: string; name: string; arguments: Record<string, unknown>; raw: string; state: "writing" | "waiting" | "running" | "done" | "failed";
  result: string; media: Part[]; seconds?: number; progress: string; question?: Question; answer?: string; inner: InnerView[];
}
export interface InnerView { agent: string; text: string }
export interface TextView { kind: "text"; key: string; text: string; live: boolean; citations: Citation[]; messageId?: string }
export interface ThinkingView { kind: "thinking"; key: string; text: string; live: boolean }
export interface UserView { kind: "user"; key: string; message: Message; queued: boolean }
export interface NoteView { kind: "note"; key: string; level: "info" | "warning" | "error"; text: string }
export interface MediaView { kind: "media"; key: string; part: Part }
export type Item = CallView | TextView | ThinkingView | UserView | NoteView | MediaView;

export interface Turn {
  id: string; agent: string; startedAt: number; outcome: string; reason: string; usage?: Usage; seconds?: number;
  firstToken?: number; chosenEngine: string; engine: string; model: string; items: Item[]; undone: boolean; isOpen: boolean; live: Map<number, Item>;
  version: number;
}

export interface Conversation { turns: Turn[]; title: string; seq: number; questions: Map<string, Question>; calls: Map<string, CallView>; status: string; count: number; engine: string }

export const empty = (): Conversation => ({ turns: [], title: "", seq: 0, questions: new Map(), calls: new Map(), status: "", count: 0, engine: "" });

function newTurn(id: string, agent: string, at: number, chosenEngine = ""): Turn {
  return { id, agent, startedAt: at, outcome: "", reason: "", chosenEngine, engine: "", model: "", items: [], undone: false, isOpen: true, live: new Map(), version: 0 };
}

function current(c: Conversation, at = 0): Turn {
  const last = c.turns[c.turns.length - 1];
  if (last) return last;
  const turn = newTurn("history", "", at);
  turn.isOpen = false;
  c.turns.push(turn);
  return turn;
}

const textOf = (parts: Part[] | undefined): string => (parts ?? []).filter((p) => p.type === "text").map((p) => p.text ?? "").join("");

/** Applies a stored entry. Entries that were applied before change nothing. */
export function applyEntry(c: Conversation, entry: Entry): void {
  if (entry.seq <= c.seq) return;
  c.seq = entry.seq;
  const event = entry.event;
  const turn = event.type === "turn_started" ? startTurn(c, event, entry.at) : current(c, entry.at);
  turn.version++;
  const key = String(entry.seq);
  switch (event.type) {
    case "history_given":
      giveHistory(c, (event.messages ?? []) as Message[], key, entry.at);
      break;
    case "message_added": {
      const message = event.message as Message;
      const queued = turn.items.find((item) => item.kind === "user" && item.message.id === message.id);
      if (queued) (queued as UserView).queued = false;
      else addMessage(c, turn, message, key);
      break;
    }
    case "message_queued":
      if (!event.quiet && event.message.shown !== false) turn.items.push({ kind: "user", key, message: event.message as Message, queued: true });
      break;
    case "inbox_taken":
      for (const item of turn.items) if (item.kind === "user" && (event.ids as string[]).includes(item.message.id ?? "")) item.queued = false;
      break;
    case "round_finished":
      finishRound(c, turn, event, key);
      break;
    case "call_started": {
      const call = c.calls.get(event.call_id as string);
      if (call) call.state = "running";
      break;
    }
    case "call_held": {
      const question = event.question as Question;
      c.questions.set(question.id, question);
      const call = c.calls.get(question.call_id ?? "");
      if (call) { call.question = question; call.state = "waiting"; }
      break;
    }
    case "question_answered": {
      const { question_id, text } = event.answer as { question_id: string; text: string };
      const question = c.questions.get(question_id);
      c.questions.delete(question_id);
      const call = c.calls.get(question?.call_id ?? "");
      if (call) { call.answer = text; call.question = undefined; call.state = "running"; }
      break;
    }
    case "call_finished": {
      const result = event.result as Part;
      const call = c.calls.get(result.call_id ?? "");
      if (call) {
        call.state = result.is_error ? "failed" : "done";
        call.result = textOf(result.parts);
        call.media = (result.parts ?? []).filter((p) => p.type === "media");
        call.seconds = event.seconds as number | undefined;
        call.question = undefined;
      }
      break;
    }
    case "handed_off":
      note(turn, key, "info", `Handed over to ${event.agent}${event.reason ? `: ${event.reason}` : ""}.`);
      turn.agent = event.agent as string;
      break;
    case "engine_changed":
      c.engine = (event.engine ?? "") as string;
      note(turn, key, "info", event.engine ? `${event.engine} answers from now on.` : "Each agent uses its own engine again.");
      break;
    case "agent_changed":
      note(turn, key, "info", `${event.agent} answers from now on.`);
      break;
    case "turns_undone":
      undo(c, event.turn as string);
      break;
    case "renamed":
      c.title = event.title as string;
      break;
    case "trimmed":
      note(turn, key, "info", `${event.messages} older messages were left out to fit the model's window.`);
      break;
    case "plugin_failed":
      note(turn, key, "warning", `The plugin ${event.plugin} failed: ${event.message}`);
      break;
    case "warned":
      note(turn, key, "warning", event.message as string);
      break;
    case "limit_hit":
      note(turn, key, "warning", event.message as string);
      break;
    case "job_started":
      note(turn, key, "info", `Background job started: ${event.name}.`);
      break;
    case "job_finished":
      note(turn, key, (event.status as string) === "done" ? "info" : "warning", `Background job ${event.status}: ${event.digest?.summary ?? ""}`);
      break;
    case "turn_finished":
      turn.isOpen = false;
      turn.live.clear();
      turn.outcome = event.outcome as string;
      turn.reason = (event.reason as string) ?? "";
      turn.usage = event.usage as Usage | undefined;
      turn.seconds = event.seconds as number | undefined;
      if (turn.outcome !== "waiting") {
        c.questions.clear();
        for (const item of turn.items) if (item.kind === "call" && item.state !== "done" && item.state !== "failed") item.state = "failed";
      }
      if (event.failure) note(turn, key, "error", (event.failure.message as string) || (event.failure.name as string));
      c.status = "";
      break;
  }
}

/** What was said elsewhere becomes a turn for each message of a person, so that a long history is a long list. */
function giveHistory(c: Conversation, messages: Message[], key: string, at: number): void {
  let turn = current(c, at);
  for (const message of messages) {
    if (message.role === "user" && turn.items.length) {
      turn = newTurn(`history.${key}.${c.count++}`, "", at);
      turn.isOpen = false;
      c.turns.push(turn);
    }
    addMessage(c, turn, message, `${key}.${c.count++}`);
  }
}

function startTurn(c: Conversation, event: Event, at: number): Turn {
  const known = c.turns.find((turn) => turn.id === event.turn);
  if (known) {
    known.isOpen = true;
    known.outcome = "";
    return known;
  }
  const turn = newTurn(event.turn as string, event.agent as string, at, c.engine);
  c.turns.push(turn);
  return turn;
}

function addMessage(c: Conversation, turn: Turn, message: Message, key: string): void {
  if (message.shown === false) return; // for the model only, such as the result of a job, which has its own note
  if (message.role === "user") {
    if ((message.author ?? "").startsWith("plugin:")) note(turn, key, "info", textOf(message.parts));
    else turn.items.push({ kind: "user", key, message, queued: false });
  } else if (message.role === "assistant") addParts(c, turn, message, key);
  else if (message.role === "error") note(turn, key, "error", textOf(message.parts));
}

/** Forgets what was streamed since the last entry: it comes again, or its entry does. */
export function dropLive(c: Conversation): void {
  const turn = c.turns[c.turns.length - 1];
  for (const item of turn?.items ?? []) if (item.kind === "call") item.inner = [];
  if (!turn?.live.size) return;
  const live = new Set(turn.live.values());
  turn.items = turn.items.filter((item) => !live.has(item));
  for (const item of live) if (item.kind === "call") c.calls.delete(item.id);
  turn.live.clear();
  turn.version++;
}

function finishRound(c: Conversation, turn: Turn, event: Event, key: string): void {
  const streamed = new Map([...turn.live].map(([index, item]) => [index, item.kind === "call" ? "" : item.key]));
  dropLive(c);
  c.status = "";
  if (event.next === "again") return;
  if (event.engine) turn.engine = event.engine as string;
  if (event.model) turn.model = event.model as string;
  if (turn.firstToken === undefined && event.first_token_s !== undefined) turn.firstToken = event.first_token_s as number;
  if (event.agent) turn.agent = event.agent as string;
  const message = event.message as Message;
  if (event.without_model) addParts(c, turn, { ...message, parts: (message.parts ?? []).filter((p) => p.type !== "text") }, key);
  else addParts(c, turn, message, key, streamed);
}

/** `streamed` has the keys under which parts are shown already, so that the page keeps what it has drawn. */
function addParts(c: Conversation, turn: Turn, message: Message, key: string, streamed?: Map<number, string>): void {
  (message.parts ?? []).forEach((part, index) => {
    const partKey = streamed?.get(index) || `${key}.${index}`;
    if (part.type === "text" && part.text) turn.items.push({ kind: "text", key: partKey, text: part.text, live: false, citations: part.citations ?? [], messageId: message.id });
    else if (part.type === "thinking" && part.text) turn.items.push({ kind: "thinking", key: partKey, text: part.text, live: false });
    else if (part.type === "media") turn.items.push({ kind: "media", key: partKey, part });
    else if (part.type === "call") addCall(c, turn, part, "waiting");
  });
}

function addCall(c: Conversation, turn: Turn, part: Part, state: CallView["state"]): CallView {
  const call: CallView = { kind: "call", id: part.id ?? "", name: part.name ?? "", arguments: part.arguments ?? {}, raw: part.broken ?? "", state, result: "", media: [], progress: "", inner: [] };
  turn.items.push(call);
  c.calls.set(call.id, call);
  return call;
}

function note(turn: Turn, key: string, level: NoteView["level"], text: string): void {
  if (text) turn.items.push({ kind: "note", key, level, text });
}

function undo(c: Conversation, from: string): void {
  const index = c.turns.findIndex((turn) => turn.id === from);
  if (index < 0) return;
  for (const turn of c.turns.slice(index)) { turn.undone = true; turn.isOpen = false; turn.version++; }
  c.questions.clear();
}

/** Applies an event that no journal keeps: pieces of a reply, progress. */
export function applyLive(c: Conversation, event: Event): void {
  const turn = current(c);
  turn.version++;
  switch (event.type) {
    case "round_started":
      c.status = event.engine ? `Waiting for ${event.engine}` : "";
      break;
    case "notice":
      c.status = event.text as string;
      break;
    case "part_started": {
      const part = event.part as Part;
      const key = `live.${turn.id}.${c.seq}.${event.index}`;
      let item: Item | undefined;
      if (part.type === "text") item = { kind: "text", key, text: part.text ?? "", live: true, citations: [] };
      else if (part.type === "thinking") item = { kind: "thinking", key, text: part.text ?? "", live: true };
      else if (part.type === "call") {
        turn.live.set(event.index as number, addCall(c, turn, part, "writing"));
        return;
      }
      if (item) { turn.live.set(event.index as number, item); turn.items.push(item); }
      c.status = "";
      break;
    }
    case "part_delta": {
      const item = turn.live.get(event.index as number);
      if (item?.kind === "text" || item?.kind === "thinking") item.text += event.text as string;
      else if (item?.kind === "call") item.raw += event.text as string;
      break;
    }
    case "part_finished": {
      const item = turn.live.get(event.index as number);
      const part = event.part as Part;
      if (item?.kind === "text" || item?.kind === "thinking") item.text = part.text ?? item.text;
      else if (item?.kind === "call") { item.arguments = part.arguments ?? {}; item.raw = ""; }
      break;
    }
    case "call_started": {
      const call = c.calls.get(event.call_id as string);
      if (call) call.state = "running";
      break;
    }
    case "spending_warned":
      note(turn, `live.${turn.id}.${c.count++}`, "warning", event.message as string);
      break;
    case "call_progressed": {
      const call = c.calls.get(event.call_id as string);
      if (call && call.state === "waiting" && !call.question) call.state = "running";
      if (call) call.progress = `${event.text ?? ""}${event.progress !== undefined ? ` (${Math.round(event.progress * 100)} %)` : ""}`;
      break;
    }
    case "nested": {
      const call = c.calls.get(event.call_id as string);
      if (call && call.state === "waiting" && !call.question) call.state = "running";
      if (call) applyNested(call, event.agent as string, event.event as Event);
      break;
    }
    case "lagged":
      dropLive(c);
      break;
  }
}

function applyNested(call: CallView, agent: string, event: Event): void {
  let inner = call.inner[call.inner.length - 1];
  if (!inner || inner.agent !== agent) {
    inner = { agent, text: "" };
    call.inner.push(inner);
  }
  if (event.type === "part_delta") inner.text += event.text as string;
  else if (event.type === "round_started") inner.text = "";
  else if (event.type === "round_finished") inner.text = textOf((event.message as Message).parts);
  else if (event.type === "nested") applyNested(call, event.agent as string, event.event as Event);
}

export const isWorking = (c: Conversation): boolean => {
  const last = c.turns[c.turns.length - 1];
  return !!last && last.isOpen && !last.undone;
};

export const messageText = (message: Message): string => textOf(message.parts);

/** The turns to show: those that count, and for each place where some were undone, the alternatives. */
export function visible(turns: Turn[]): Turn[] {
  return turns.filter((turn) => !turn.undone);
}

/** Earlier versions of the turn at this position: turns that were undone right before it. */
export function versionsBefore(turns: Turn[], turn: Turn): Turn[] {
  const index = turns.indexOf(turn);
  const found: Turn[] = [];
  for (let at = index - 1; at >= 0 && turns[at]!.undone; at--) found.unshift(turns[at]!);
  return found;
}
