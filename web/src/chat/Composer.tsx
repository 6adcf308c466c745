// Where people write: text, files by button, paste and drop, a draft for each conversation.
import { useEffect, useRef, useState } from "preact/hooks";
import { agents } from "../state";
import type { Talk } from "./talk";

export interface Attached { name: string; data: string; size: number }
const FILE_MAX = 32_000_000;
const FILES_MAX = 20;
const TEXT_MAX = 2_000_000;
const DRAFT_MAX = 1_000_000;

function keepDraft(key: string, text: string): void {
  try {
    if (text && text.length <= DRAFT_MAX) localStorage.setItem(`draft:${key}`, text);
    else localStorage.removeItem(`draft:${key}`);
  } catch { /* the browser's storage is full: the draft lives as long as the tab */ }
}

/** What an element needs to take files that are dropped on it. */
export function useDrop(files: ReturnType<typeof useFiles>) {
  const [dropping, setDropping] = useState(false);
  return {
    class: `chat ${dropping ? "dropping" : ""}`,
    onDragOver: (event: DragEvent) => { event.preventDefault(); setDropping(true); },
    onDragLeave: () => setDropping(false),
    onDrop: (event: DragEvent) => { event.preventDefault(); setDropping(false); if (event.dataTransfer?.files.length) void files.add(event.dataTransfer.files); },
  };
}

export function readFile(file: File): Promise<Attached> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.onload = () => resolve({ name: file.name || "pasted", data: String(reader.result).replace(/^[^,]*,/, ""), size: file.size });
    reader.readAsDataURL(file);
  });
}

export function useFiles(onError: (text: string) => void) {
  const [files, setFiles] = useState<Attached[]>([]);
  const add = async (list: FileList | File[]) => {
    const given = [...list];
    onError("");
    if (files.length + given.length > FILES_MAX) return onError(`${files.length + given.length} files are too many; attach at most ${FILES_MAX}.`);
    const large = given.find((file) => file.size > FILE_MAX);
    if (large) return onError(`${large.name} is larger than ${FILE_MAX / 1e6} MB.`);
    if (given.some((file) => file.size === 0)) return onError("An empty file or a folder cannot be attached.");
    try {
      const read = await Promise.all(given.map(readFile));
      setFiles((known) => [...known, ...read]);
    } catch (error) {
      onError((error as Error).message);
    }
  };
  return { files, add, remove: (at: number) => setFiles((known) => known.filter((_, index) => index !== at)), clear: () => setFiles([]) };
}

export function Composer({ talk, draftKey, working, agent, onAgent, onSend, files, onStop }: {
  talk?: Talk; draftKey: string; working: boolean; agent: string; onAgent?: (name: string) => void;
  onSend: (text: string, mode: "queue" | "steer") => Promise<boolean>;
  files: ReturnType<typeof useFiles>; onStop: () => void;
}) {
  const [text, setText] = useState(() => localStorage.getItem(`draft:${draftKey}`) ?? "");
  const [mode, setMode] = useState<"queue" | "steer">("steer");
  const [refused, setRefused] = useState("");
  const box = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  useEffect(() => { box.current?.focus(); }, []);
  useEffect(() => {
    const area = box.current;
    if (area) { area.style.height = "auto"; area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`; }
  }, [text]);
  const tooLong = text.length > TEXT_MAX;
  const send = async () => {
    if ((!text.trim() && !files.files.length) || tooLong || talk?.sending.value) return;
    const sent = text;
    // Sending may lead to another screen, after which nothing here runs any more.
    keepDraft(draftKey, "");
    setText("");
    if (await onSend(sent, working ? mode : "queue")) return files.clear();
    keepDraft(draftKey, box.current?.value || sent); // what was typed meanwhile is the newer one
    setText((since) => since || sent);
  };
  return (
    <div class="composer-wrap">
      <div class="composer">
        {files.files.length > 0 && (
          <div class="files">
            {files.files.map((file, at) => <span class="file" key={at}><span class="cut">{file.name}</span><button class="plain" aria-label={`Remove ${file.name}`} onClick={() => files.remove(at)}>×</button></span>)}
          </div>
        )}
        <textarea ref={box} rows={1} value={text} dir="auto" aria-label="Message" placeholder={working ? "Say something while it works…" : talk ? "Message, or ↑ to edit your last one" : "Message"}
          onInput={(event) => {
            keepDraft(draftKey, event.currentTarget.value); // not in an effect: it would not run if the person leaves at once
            setText(event.currentTarget.value);
            setRefused("");
          }}
          onPaste={(event) => {
            const pasted = event.clipboardData?.files;
            if (pasted?.length) { event.preventDefault(); void files.add(pasted); return; }
            const size = event.clipboardData?.getData("text/plain").length ?? 0;
            if (size <= TEXT_MAX) return setRefused("");
            event.preventDefault();
            setRefused(`The pasted text has ${size.toLocaleString("en-US")} characters; at most ${TEXT_MAX.toLocaleString("en-US")} can be sent. Attach it as a file.`);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); void send(); }
            else if (event.key === "Escape" && working) { event.preventDefault(); onStop(); }
            else if (event.key === "ArrowUp" && !text) { event.preventDefault(); dispatchEvent(new Event("rondel:edit-last")); }
          }} />
        {(tooLong || refused) && <div class="bad small" role="alert">{refused || `The text has ${text.length.toLocaleString("en-US")} characters; at most ${TEXT_MAX.toLocaleString("en-US")} can be sent. Attach it as a file.`}</div>}
        <div class="row">
          <button class="plain" onClick={() => picker.current?.click()}>+ File</button>
          <input ref={picker} type="file" multiple class="visually-hidden" tabIndex={-1} aria-label="Attach files" onChange={(event) => { void files.add(event.currentTarget.files ?? []); event.currentTarget.value = ""; }} />
          {onAgent ? (
            <select aria-label="Agent" value={agent} onChange={(event) => onAgent(event.currentTarget.value)}>
              {agents.value.map((one) => <option value={one.name}>{one.name}</option>)}
            </select>
          ) : <span class="soft cut">{agent}</span>}
          {working && (
            <select aria-label="While it works" value={mode} onChange={(event) => setMode(event.currentTarget.value as "queue" | "steer")}>
              <option value="steer">Steer: read between two steps</option><option value="queue">Queue: answer afterwards</option>
            </select>
          )}
          {working ? <button class="send danger" onClick={onStop}>Stop <kbd>Esc</kbd></button> : <span class="send" />}
          <button class="primary" disabled={(!text.trim() && !files.files.length) || tooLong} onClick={() => void send()}>Send</button>
        </div>
      </div>
    </div>
  );
}
