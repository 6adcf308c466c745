// What was said and done: messages, thinking, tool calls, questions, notes.
import { memo } from "preact/compat";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Citation, Part, Question, TraceNode } from "../api";
import { enc, get } from "../api";
import type { CallView, Item, Turn, UserView } from "../fold";
import { messageText, versionsBefore } from "../fold";
import { count, dollars, pretty, seconds, short, sourceName } from "../format";
import { CopyButton } from "../parts/common";
import { agents, me } from "../state";
import { Markdown } from "../parts/Markdown";
import type { Talk } from "./talk";

const ITEMS = 100; // of one turn in the page at once

export const TurnView = memo(({ talk, turn, isLast, onTrace }: { talk: Talk; turn: Turn; isLast: boolean; version: number; onTrace: (turn: Turn) => void }) => {
  const [shown, setShown] = useState<number | null>(null);
  const others = versionsBefore(talk.fold.turns, turn);
  const at = shown ?? others.length;
  const current = at < others.length ? others[at]! : turn;
  const isOld = current !== turn;
  const [most, setMost] = useState(ITEMS);
  const hidden = Math.max(0, current.items.length - most);
  return (
    <article class="turn" aria-label={`Turn of ${current.agent || "the agent"}`} data-turn={turn.id}>
      {others.length > 0 && (
        <div class="under" role="group" aria-label="Versions of this turn">
          <button class="plain" aria-label="Earlier version" disabled={at === 0} onClick={() => setShown(at - 1)}>‹</button>
          <span>{at + 1} / {others.length + 1}</span>
          <button class="plain" aria-label="Later version" disabled={at === others.length} onClick={() => setShown(at + 1)}>›</button>
        </div>
      )}
      {hidden > 0 && <>{current.items[0]!.kind === "user" && <ItemView key={keyOf(current.items[0]!)} item={current.items[0]!} talk={talk} turn={current} canEdit={isLast && !isOld && !current.isOpen} />}<button onClick={() => setMost(most + ITEMS)}>Show earlier steps ({hidden})</button></>}
      {current.items.slice(hidden).map((item) => <ItemView key={keyOf(item)} item={item} talk={talk} turn={current} canEdit={isLast && !isOld && !current.isOpen} />)}
      {!current.isOpen && <Meta talk={talk} turn={current} isLast={isLast && !isOld} onTrace={onTrace} />}
    </article>
  );
}, (a, b) => a.turn === b.turn && a.version === b.version && a.isLast === b.isLast && a.talk === b.talk);

const keyOf = (item: Item): string => (item.kind === "call" ? item.id : item.key);

function ItemView({ item, talk, turn, canEdit }: { item: Item; talk: Talk; turn: Turn; canEdit: boolean }) {
  switch (item.kind) {
    case "user": return <UserMessage item={item} talk={talk} canEdit={canEdit && turn.items.find((one) => one.kind === "user") === item} />;
    case "text": return <div><Markdown text={item.text} live={item.live} citations={item.citations} /><Sources citations={item.citations} /></div>;
    case "thinking": return <Thinking text={item.text} live={item.live} />;
    case "call": return <CallCard call={item} talk={talk} />;
    case "media": return <MediaPart part={item.part} />;
    case "note": return <div class={`note ${item.level}`} role={item.level === "error" ? "alert" : undefined}>{item.text}</div>;
  }
}

function UserMessage({ item, talk, canEdit }: { item: UserView; talk: Talk; canEdit: boolean }) {
  const [draft, setDraft] = useState<string | null>(null);
  const text = messageText(item.message);
  const media = (item.message.parts ?? []).filter((part) => part.type === "media");
  const box = useRef<HTMLTextAreaElement>(null);
  // Before it is painted: a person may press the key as soon as they see the answer.
  useLayoutEffect(() => {
    const start = () => { if (canEdit) setDraft(text); };
    addEventListener("rondel:edit-last", start);
    return () => removeEventListener("rondel:edit-last", start);
  }, [canEdit, text]);
  useEffect(() => { if (draft !== null) box.current?.focus(); }, [draft !== null]);
  if (draft !== null) {
    const save = async () => { if (draft.trim() && (await talk.edit(draft))) setDraft(null); };
    return (
      <div class="composer" role="group" aria-label="Edit your message">
        <textarea ref={box} rows={Math.min(12, draft.split("\n").length + 1)} value={draft} dir="auto" aria-label="Your message"
          onInput={(event) => setDraft(event.currentTarget.value)}
          onKeyDown={(event) => { if (event.key === "Escape") setDraft(null); if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void save(); }} />
        <div class="row"><span class="soft">The answer below is replaced; the arrows bring it back.</span>
          <button class="send" onClick={() => setDraft(null)}>Cancel</button><button class="primary" onClick={() => void save()}>Send again</button></div>
      </div>
    );
  }
  return (
    <>
      {media.map((part) => <div class="row" style={{ justifyContent: "flex-end" }}><MediaPart part={part} /></div>)}
      {text && <div class={`bubble ${item.queued ? "queued" : ""}`} dir="auto">{text}</div>}
      <div class="under">
        {item.queued && <span>read after the current step</span>}
        {item.message.author && !["user", "local"].includes(item.message.author) && <span>{item.message.author}</span>}
        {text && <CopyButton text={() => text} />}
        {canEdit && text && <button class="plain tiny" onClick={() => setDraft(text)}>Edit</button>}
      </div>
    </>
  );
}

function Thinking({ text, live }: { text: string; live: boolean }) {
  return (
    <details class="fold thinking">
      <summary>{live ? "Thinking…" : "Thought"} <span class="cut tiny">{short(text.slice(-160))}</span></summary>
      <div class="fold-body"><pre class="block" dir="auto">{text}</pre></div>
    </details>
  );
}

function MediaPart({ part }: { part: Part }) {
  if (part.kind === "image" && part.url?.startsWith("/api/")) return <img class="picture" src={part.url} alt={part.name || "An attached image"} loading="lazy" />;
  if (part.url?.startsWith("/api/")) return <a class="file" href={part.url} download={part.name || "file"}>📎 <span class="cut">{part.name || "file"}</span></a>;
  return <span class="file">📎 <span class="cut">{part.name || part.mime || part.kind || "file"}</span></span>;
}

const STATES: Record<CallView["state"], [string, string]> = {
  writing: ["…", "writing the call"], waiting: ["…", "waiting"], running: ["…", "running"], done: ["✓", "done"], failed: ["✗", "failed"],
};

function CallCard({ call, talk }: { call: CallView; talk: Talk }) {
  const [mark, said] = STATES[call.state];
  const isOpenQuestion = call.question && talk.fold.questions.has(call.question.id);
  return (
    <>
      <details class="fold">
        <summary>
          <span class={call.state === "failed" ? "bad" : "soft"} role="img" aria-label={said}>{mark}</span>
          <b>{call.name}</b>
          <code class="cut">{call.raw ? short(call.raw) : Object.keys(call.arguments).length ? short(call.arguments) : ""}</code>
          <time>{call.progress && call.state === "running" ? call.progress : seconds(call.seconds)}</time>
        </summary>
        <div class="fold-body">
          <div class="tiny soft">Arguments</div><pre class="block">{call.raw || pretty(call.arguments)}</pre>
          {call.answer && <div class="tiny soft">You answered: {call.answer}</div>}
          {call.result && <><div class="tiny soft">{call.state === "failed" ? "Error" : "Result"}</div><pre class="block" dir="auto">{call.result.slice(0, 40_000)}</pre></>}
        </div>
      </details>
      {call.inner.length > 0 && call.state === "running" && call.inner.map((inner) => <div class="note" key={inner.agent}>{inner.agent}: {short(inner.text.slice(-200), 200)}</div>)}
      {call.media.map((part) => <MediaPart part={part} />)}
      {isOpenQuestion && <QuestionCard question={call.question!} talk={talk} />}
    </>
  );
}

const EARLY_MS = 400; // keys pressed this soon after a question appeared were meant for something else

export function QuestionCard({ question, talk }: { question: Question; talk: Talk }) {
  const [text, setText] = useState("");
  const options = question.options ?? [];
  const takesText = question.free_text !== false && question.kind !== "approve";
  const label = (option: string) => (question.kind === "approve" ? { yes: "Yes", no: "No", always: "Always" }[option] ?? option : option);
  const answer = (value: string) => talk.answer(question.id, value);
  const box = useRef<HTMLDivElement>(null);
  const [ready, setReady] = useState(false);
  useEffect(() => {
    setReady(false);
    const timer = setTimeout(() => setReady(true), EARLY_MS);
    return () => clearTimeout(timer);
  }, [question.id]);
  const sending = talk.sending.value; // the question may come before the message's own answer: buttons are disabled until then
  // A person who is typing keeps typing: what was meant for a message must not answer a question.
  useEffect(() => {
    const at = document.activeElement;
    const isTyping = (at instanceof HTMLTextAreaElement || at instanceof HTMLInputElement) && at.value !== "";
    if (!sending && !isTyping && !document.querySelector("dialog[open]")) box.current?.querySelector<HTMLElement>("button, input")?.focus({ preventScroll: true });
  }, [question.id, sending]);
  return (
    <div class={`ask ${ready ? "ready" : ""}`} role="group" aria-label="Waiting for you" ref={box}
      onKeyDown={(event) => {
        const at = Number(event.key) - 1;
        if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
        if (!ready && (options[at] || event.key === "Enter" || event.key === " ")) return event.preventDefault();
        if (!options[at]) return;
        event.preventDefault();
        void answer(options[at]!);
      }}>
      <h3>Waiting for you</h3>
      <pre dir="auto" tabIndex={0} role="region" aria-label="What is asked">{question.text}</pre>
      <div class="row wrap">
        {options.map((option, at) => (
          <button class={at === 0 && question.kind !== "approve" ? "primary" : option === "yes" ? "primary" : ""} disabled={sending} onClick={() => void answer(option)}>
            {label(option)} <kbd>{at + 1}</kbd>
          </button>
        ))}
        {takesText && (
          <form class="row grow" onSubmit={(event) => { event.preventDefault(); if (text.trim()) void answer(text); }}>
            <input class="grow" value={text} aria-label="Your answer" placeholder={options.length ? "or say it in your own words" : "Your answer"} onInput={(event) => setText(event.currentTarget.value)} dir="auto" />
            <button disabled={!text.trim() || sending}>Answer</button>
          </form>
        )}
      </div>
      {question.deadline && <div class="tiny">No answer until {new Date(question.deadline * 1000).toLocaleTimeString()} counts as “no”.</div>}
    </div>
  );
}

function Sources({ citations }: { citations: Citation[] }) {
  if (!citations.length) return null;
  return (
    <ol class="sources" aria-label="Sources">
      {citations.map((source, index) => {
        const label = short(sourceName(source), 60);
        const isWeb = /^https?:/i.test(source.url ?? "");
        return (
          <li title={source.quote ?? ""}><span>{source.number || index + 1}</span>
            {isWeb ? <a href={source.url} target="_blank" rel="noopener noreferrer nofollow">{label}</a> : <span>{label}</span>}
          </li>
        );
      })}
    </ol>
  );
}

/** Why this engine answered. */
function reason(turn: Turn): string {
  const own = agents.value.find((one) => one.name === turn.agent)?.engine;
  const is = `${turn.engine} answered`;
  if (turn.chosenEngine) return turn.chosenEngine === turn.engine ? `${is}: it was chosen for this conversation.` : `${is}, for ${turn.chosenEngine}, which was chosen for this conversation.`;
  if (own && own !== turn.engine) return `${is}; ${turn.agent} would ask ${own} now. Its trace shows the attempts.`;
  return me.value?.engine === turn.engine ? `${is}, the default engine: ${me.value.engine_why}.` : `${is}: it is the engine of ${turn.agent || "the agent"}.`;
}

function Meta({ talk, turn, isLast, onTrace }: { talk: Talk; turn: Turn; isLast: boolean; onTrace: (turn: Turn) => void }) {
  const [cost, setCost] = useState("");
  const [isWhy, setWhy] = useState(false);
  const usage = turn.usage;
  const hasWork = turn.items.some((item) => item.kind !== "user");
  if (turn.id.startsWith("history") || (!hasWork && !turn.outcome)) return null;
  const text = turn.items.filter((item) => item.kind === "text").map((item) => (item as { text: string }).text).join("\n\n");
  const lastMessage = [...turn.items].reverse().find((item) => item.kind === "text" && item.messageId) as { messageId?: string } | undefined;
  const openCost = async () => {
    const root = await get<TraceNode>(`/api/conversations/${enc(talk.id)}/trace?turn=${enc(turn.id)}`);
    setCost(root.cost !== undefined ? dollars(root.cost) + (root.unpriced ? ` (${root.unpriced} calls without a price)` : "") : "price unknown");
  };
  return (
    <div class="meta">
      {turn.outcome === "stopped" && <span class="warn">stopped</span>}
      {turn.outcome === "limited" && <span class="warn">ended by a limit: {turn.reason}</span>}
      {turn.outcome === "failed" && <span class="bad">failed</span>}
      {usage && (usage.tokens_in || usage.tokens_out) ? <a href={`#/traces/${enc(talk.id)}?turn=${enc(turn.id)}`} title="See the prompt">{count(usage.tokens_in)} in · {count(usage.tokens_out)} out</a> : null}
      {usage && <button class="plain tiny" title="Show what it cost" onClick={() => void openCost()}>{cost || "Cost"}</button>}
      {turn.firstToken !== undefined && <span>first token {seconds(turn.firstToken)}</span>}
      {turn.seconds !== undefined && <span>{seconds(turn.seconds)}</span>}
      {(turn.model || turn.engine) && <button class="plain tiny cut" aria-expanded={isWhy} title="Why this model?" onClick={() => setWhy(!isWhy)}>{turn.model || turn.engine}</button>}
      <button class="plain tiny" onClick={() => onTrace(turn)}>Trace</button>
      {text && <CopyButton text={() => text} />}
      {isLast && turn.outcome !== "waiting" && <button class="plain tiny" onClick={() => void talk.regenerate()}>Regenerate</button>}
      {lastMessage?.messageId && <button class="plain tiny" onClick={() => void talk.fork(lastMessage.messageId!)}>Fork</button>}
      {isWhy && <span class="why">{reason(turn)}</span>}
    </div>
  );
}
