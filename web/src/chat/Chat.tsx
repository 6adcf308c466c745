// The chat screen: a conversation, what is behind its answers, and the place to write.
import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { enc } from "../api";
import type { Turn } from "../fold";
import { visible } from "../fold";
import { Failed, MenuButton } from "../parts/common";
import { agents, go, loadConversations, me, online, place } from "../state";
import { TracePanel } from "../traces/TracePanel";
import { Composer, useDrop, useFiles } from "./Composer";
import { ModelOffer } from "./ModelOffer";
import { newConversation, Talk, infoOf } from "./talk";
import { QuestionCard, TurnView } from "./Turns";

const WINDOW = 60; // turns in the page at once

export function Chat({ id }: { id: string }) {
  return id ? <Conversation key={id} id={id} /> : <Welcome />;
}

const TRIES = ["What can you do here?", "Explain recursion with a small example in Python.", "Help me plan a quiet weekend."];

function Welcome() {
  const [picked, setAgent] = useState("");
  const agent = picked || agents.value.find((one) => one.name === place.value.query.get("agent"))?.name || "";
  const [error, setError] = useState("");
  const [ready, setReady] = useState(true);
  const chosen = agent || agents.value.find((one) => one.is_default)?.name || agents.value[0]?.name || "";
  const files = useFiles(setError);
  useEffect(() => { document.title = "New conversation · Rondel"; }, []);
  const send = async (text: string) => {
    setError("");
    try {
      const id = await newConversation(chosen);
      const talk = new Talk(id);
      if (!(await talk.send(text, files.files.map(({ name, data }) => ({ name, data })), "queue"))) {
        setError(talk.error.value);
        return false;
      }
      go(`chat/${enc(id)}`);
      void loadConversations();
      return true;
    } catch (failure) {
      setError((failure as Error).message);
      return false;
    }
  };
  return (
    <main {...useDrop(files)}>
      <div class="chat-head"><MenuButton /><b>New conversation</b></div>
      <div class="scroll">
        <div class="welcome">
          <h1>What would you like to do?</h1>
          {me.value && ready && (me.value.engine === "none"
            ? <div class="note warning">No model can answer yet: {me.value.engine_why}.</div>
            : <p class="soft">Using <span class="mono">{me.value.engine}</span>: {me.value.engine_why}.</p>)}
          <ModelOffer onReady={setReady} />
          {ready && me.value?.hints.map((hint) => <p class="soft small">{hint.charAt(0).toUpperCase() + hint.slice(1)}.</p>)}
          {ready && me.value?.engine !== "none" && <div class="tries">{TRIES.map((text) => <button onClick={() => void send(text)}>{text}</button>)}</div>}
          {error && <div class="note error" role="alert">{error}</div>}
        </div>
      </div>
      <Composer draftKey="new" working={false} agent={chosen} onAgent={setAgent} files={files} onStop={() => {}} onSend={(text) => send(text)} />
    </main>
  );
}

function Conversation({ id }: { id: string }) {
  const talk = useMemo(() => new Talk(id), [id]);
  const [trace, setTrace] = useState<string | null>(null);
  const [start, setStart] = useState<number | null>(null);
  const scroll = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const seen = useRef({ top: 0, height: 0, client: 0 }); // where the page itself has scrolled to, and how large all was
  const [away, setAway] = useState(false);
  const files = useFiles((text) => { talk.error.value = text; });
  const drop = useDrop(files);
  const held = useRef<{ element: HTMLElement; top: number } | null>(null); // what must not move when the window does
  useEffect(() => { void talk.open(); return () => talk.close(); }, [talk]);
  const version = talk.version.value;
  const title = useComputed(() => { void talk.version.value; return infoOf(id)?.title || talk.fold.title || "Conversation"; }).value;
  useEffect(() => { document.title = `${title} · Rondel`; }, [title]);
  useLayoutEffect(() => {
    const box = scroll.current;
    if (box && following.current) box.scrollTop = box.scrollHeight;
    else if (box && held.current?.element.isConnected) box.scrollTop += held.current.element.getBoundingClientRect().top - held.current.top;
    held.current = null;
    measure();
  }, [version, talk.loaded.value, start]);
  // A fold that is opened changes the height: what is scrolled after that is a person again.
  const measure = () => { const box = scroll.current; if (box) seen.current = { top: box.scrollTop, height: box.scrollHeight, client: box.clientHeight }; };
  useEffect(() => {
    const box = scroll.current;
    box?.addEventListener("toggle", measure, true);
    return () => box?.removeEventListener("toggle", measure, true);
  }, [talk.loaded.value]);
  const moveTo = (next: number | null) => {
    following.current = false;
    const edge = scroll.current!.getBoundingClientRect().top;
    const element = [...scroll.current!.querySelectorAll<HTMLElement>("article.turn")].find((one) => one.getBoundingClientRect().bottom > edge);
    held.current = element ? { element, top: element.getBoundingClientRect().top } : null;
    setStart(next);
  };
  useEffect(() => {
    const stop = () => { if (talk.isWorking) void talk.stop(); };
    addEventListener("rondel:stop", stop);
    return () => removeEventListener("rondel:stop", stop);
  }, [talk]);

  if (talk.gone.value) {
    return <main class="chat"><div class="chat-head"><MenuButton /></div><div class="empty"><div>This conversation does not exist any more. It may have been deleted in another tab.</div><button onClick={() => go("chat")}>Start a new one</button></div></main>;
  }
  if (talk.unopened.value) {
    return <main class="chat"><div class="chat-head"><MenuButton /></div><Failed error={talk.error.value} retry={() => void talk.open()} /></main>;
  }
  const turns = visible(talk.fold.turns);
  const first = start ?? Math.max(0, turns.length - WINDOW);
  const shown = turns.slice(first, first + WINDOW);
  const working = talk.isWorking;
  const last = turns[turns.length - 1];
  const loose = [...talk.fold.questions.values()].filter((question) => !talk.fold.calls.has(question.call_id ?? ""));
  const interrupted = talk.loaded.value && infoOf(id)?.state === "interrupted";
  return (
    <>
      <main {...drop}>
        <div class="chat-head">
          <MenuButton />
          <h1 class="cut" dir="auto">{title}</h1>
          <span class="soft cut">{last?.agent || talk.agent.value}</span>
          <span class="engine mono soft cut">{talk.engine.value}</span>
          <a class="small" href={`/api/conversations/${enc(id)}/export`} download>Export</a>
        </div>
        {!online.value && <div class="banner" role="status">The connection is gone. Reconnecting; nothing that was said is lost.</div>}
        <div class="scroll" ref={scroll} tabIndex={0} role="region" aria-label="Messages" onScroll={(event) => {
          const box = event.currentTarget;
          // Only a person scrolls up while nothing changes its size; more text is no reason to stop following.
          const was = seen.current;
          const isPerson = box.scrollTop < was.top - 1 && box.scrollHeight === was.height && box.clientHeight === was.client;
          const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60 && first + WINDOW >= turns.length;
          following.current = isAtEnd || (following.current && !isPerson);
          if (following.current && !isAtEnd) box.scrollTop = box.scrollHeight;
          measure();
          setAway(!following.current);
        }}>
          <div class="column">
            {first > 0 && <button onClick={() => moveTo(Math.max(0, first - WINDOW / 2))}>Show earlier messages ({first})</button>}
            {shown.map((turn) => <TurnView key={turn.id} talk={talk} turn={turn} version={turn.version} isLast={turn === last} onTrace={(one: Turn) => setTrace(trace === one.id ? null : one.id)} />)}
            {first + WINDOW < turns.length && <button onClick={() => moveTo(first + WINDOW / 2 + WINDOW >= turns.length ? null : first + WINDOW / 2)}>Show later messages ({turns.length - first - WINDOW})</button>}
            {loose.map((question) => <QuestionCard key={question.id} question={question} talk={talk} />)}
            {working && <div class="working" role="status"><span class="dot working" />{talk.fold.status || "Working"}…</div>}
            {[...talk.waiting.value].map(([key, text]) => <div class="turn" key={key}><div class="bubble queued" dir="auto">{text}</div><div class="under">answered after the current turn</div></div>)}
            {interrupted && !working && <div class="note warning">This conversation was interrupted. <button onClick={() => void talk.resume()}>Continue</button></div>}
            {talk.error.value && <div class="note error" role="alert">{talk.error.value}</div>}
          </div>
        </div>
        {away && <button class="down" onClick={() => { following.current = true; setAway(false); if (start === null) scroll.current!.scrollTop = scroll.current!.scrollHeight; else setStart(null); }}>↓ Newest</button>}
        <Composer talk={talk} draftKey={id} working={working} agent={last?.agent || talk.agent.value} files={files} onStop={() => void talk.stop()}
          onSend={(text, mode) => { following.current = true; setStart(null); return talk.send(text, files.files.map(({ name, data }) => ({ name, data })), mode); }} />
      </main>
      {trace && <aside class="right" aria-label="Trace"><TracePanel conversation={id} turn={trace} version={working ? version : 0} onClose={() => setTrace(null)} /></aside>}
    </>
  );
}
