// Ctrl K: conversations, screens, agents and commands, by typing.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Info } from "../api";
import { enc, get } from "../api";
import { agents, conversations, go, helpOpen, paletteOpen, screens, setTheme, theme } from "../state";
import { Dialog } from "./common";

interface Choice { label: string; kind: string; run: () => void }

export function Palette() {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState<Info[]>([]);
  useEffect(() => {
    if (!text.trim()) return setFound([]);
    const controller = new AbortController();
    const timer = setTimeout(() => { get<{ conversations: Info[] }>(`/api/conversations?limit=20&search=${enc(text)}`, controller.signal).then((page) => setFound(page.conversations)).catch(() => {}); }, 150);
    return () => { clearTimeout(timer); controller.abort(); };
  }, [text]);
  const choices = useMemo(() => {
    const commands: Choice[] = [
      { label: "New conversation", kind: "command", run: () => go("chat") },
      ...screens().map(([id, label]) => ({ label, kind: "screen", run: () => go(id) })),
      ...agents.value.map((one) => ({ label: one.name, kind: "agent", run: () => go(`agents/${enc(one.name)}`) })),
      { label: theme.value === "dark" ? "Light theme" : "Dark theme", kind: "command", run: () => setTheme(theme.value === "dark" ? "light" : "dark") },
      { label: "Keyboard shortcuts", kind: "command", run: () => { helpOpen.value = true; } },
    ];
    const wanted = text.toLowerCase();
    const talks = (text.trim() ? found : conversations.value.slice(0, 8)).map((info) => ({ label: info.title || "(empty)", kind: "conversation", run: () => go(`chat/${enc(info.id)}`) }));
    return [...commands.filter((one) => one.label.toLowerCase().includes(wanted)), ...talks].slice(0, 30);
  }, [text, found, conversations.value, agents.value]);
  const run = (choice: Choice | undefined) => { if (choice) { paletteOpen.value = false; choice.run(); } };
  return (
    <Dialog label="Search and commands" onClose={() => { paletteOpen.value = false; }}>
      <div class="palette">
        <input value={text} placeholder="Search conversations, screens, agents…" aria-label="Search" role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={`palette-${at}`}
          onInput={(event) => { setText(event.currentTarget.value); setAt(0); }}
          onKeyDown={(event) => {
            if (event.key === "ArrowDown") { event.preventDefault(); setAt(Math.min(at + 1, choices.length - 1)); }
            else if (event.key === "ArrowUp") { event.preventDefault(); setAt(Math.max(at - 1, 0)); }
            else if (event.key === "Enter") { event.preventDefault(); run(choices[at]); }
          }} />
        <ul id="palette-list" role="listbox" aria-label="Results">
          {choices.map((choice, index) => (
            <li id={`palette-${index}`} role="option" aria-selected={index === at} class={index === at ? "on" : ""} onClick={() => run(choice)}>
              <span class="cut grow" dir="auto">{choice.label}</span><span class="soft tiny">{choice.kind}</span>
            </li>
          ))}
        </ul>
      </div>
    </Dialog>
  );
}

const KEYS: [string, string][] = [
  ["Ctrl K", "search conversations, screens, agents and commands"], ["Alt N", "new conversation"], ["Enter or Ctrl Enter", "send; Shift Enter inserts a line"],
  ["Esc", "stop what is running"], ["↑ in an empty message", "edit your last message"], ["1, 2, 3", "answer a question"], ["J, K", "next, previous message"], ["?", "show this"],
];

export function Help() {
  return (
    <Dialog label="Keyboard shortcuts" onClose={() => { helpOpen.value = false; }}>
      <div class="card stack"><h2>Keyboard</h2><div class="kv">{KEYS.map(([key, does]) => <><kbd>{key}</kbd><b>{does}</b></>)}</div><button onClick={() => { helpOpen.value = false; }}>Close</button></div>
    </Dialog>
  );
}
