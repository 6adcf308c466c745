// What a newcomer without a model sees: models that run on this computer, with size and licence. Nothing is downloaded
// before they say so, and a "no" is remembered.
import { useEffect, useState } from "preact/hooks";
import type { Me } from "../api";
import { api, enc, get, post } from "../api";
import { useLoaded } from "../parts/common";
import { useRefresh, WorkView, type Work } from "../parts/work";
import { loadAgents, me } from "../state";

interface Model { name: string; title: string; description: string; size: string; licence: string; is_present: boolean; download?: Work | null }
interface Models { models: Model[]; is_missing: boolean; declined: boolean }

/** Shows the offer, if there is one. `onReady` says whether a message can be answered. */
export function ModelOffer({ onReady }: { onReady: (ready: boolean) => void }) {
  const loaded = useLoaded<Models>((signal) => get("/api/models", signal), []);
  const [open, setOpen] = useState(false);
  const [error, setError] = useState("");
  const data = loaded.data;
  const running = data?.models.find((one) => one.download?.state === "running");
  useRefresh(loaded.reload, !!running);
  useEffect(() => { if (data) onReady(!data.is_missing); }, [data?.is_missing]);
  const finished = data?.models.filter((one) => one.download?.state === "done").map((one) => one.name).join();
  useEffect(() => { if (finished !== undefined) void get<Me>("/api/me").then((found) => { me.value = found; return loadAgents(); }).catch(() => {}); }, [finished, data?.is_missing]);
  if (!data?.models.length) return null;
  const isAdmin = me.value?.person.roles?.includes("admin");
  const run = async (doing: () => Promise<unknown>) => { try { await doing(); setError(""); } catch (failure) { setError((failure as Error).message); } loaded.reload(); };
  if (!isAdmin) return data.is_missing ? <div class="note warning">No model can answer here yet. Ask whoever runs this server to open this page.</div> : null;
  if (data.declined && !open && !running) {
    return <div class="small soft">{data.is_missing ? "No model is downloaded." : "A better model can run on this computer."} <button class="plain tiny" onClick={() => setOpen(true)}>Choose one</button></div>;
  }
  return (
    <section class="card stack tight" aria-label="Models for this computer">
      <h2>{data.is_missing ? "Choose a model to begin" : "A better model can run on this computer"}</h2>
      <p class="small soft">It runs here: what you say stays on this computer. It is downloaded once, from the addresses that the documentation lists.</p>
      {error && <div class="note error" role="alert">{error}</div>}
      {data.models.filter((one) => !one.is_present).map((one, at) => (
        <div class="offer" key={one.name}>
          <div class="row wrap"><div class="grow"><b>{one.title}</b><div class="small soft">{one.size}, licence {one.licence}: {one.description}</div></div>
            {!running && <button class={at === 0 ? "primary" : ""} onClick={() => void run(() => post(`/api/models/${enc(one.name)}/download`))}>{one.download?.state === "failed" || one.download?.state === "cancelled" ? "Continue" : `Download ${one.size}`}</button>}</div>
          <WorkView work={one.download && { ...one.download, step: one.download.step ? `downloading: ${one.download.step}` : "" }} name={`Download of ${one.title}`} onCancel={() => void run(() => post(`/api/models/${enc(one.name)}/cancel`))} />
        </div>
      ))}
      {!running && <div class="row wrap small"><span class="soft grow">Or set <code>ANTHROPIC_API_KEY</code> or <code>OPENAI_API_KEY</code>, or start Ollama, and run <code>rondel serve</code> again.</span>
        <button onClick={() => void run(async () => { await api("DELETE", "/api/models"); setOpen(false); })}>No, thanks</button></div>}
    </section>
  );
}
