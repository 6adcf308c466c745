// Settings: the effective values, where each comes from, and what can be changed now; the theme; this person's sessions.
import { useState } from "preact/hooks";
import { api, enc, get } from "../api";
import { moment } from "../format";
import { Loading, Screen, Table, useLoaded } from "../parts/common";
import { me, setTheme, theme, type Theme } from "../state";

interface Setting { key: string; value: string; source: string; kind?: "engine" | "number" | "switch" | string[] | null }
interface Session { id: string; key: string; created_at: number; until: number; browser?: string }

export function Settings() {
  const isAdmin = me.value?.person.roles?.includes("admin");
  const [filter, setFilter] = useState("");
  const settings = useLoaded<Setting[]>((signal) => (isAdmin ? get("/api/settings", signal) : Promise.resolve([])), [isAdmin]);
  const sessions = useLoaded<Session[]>((signal) => (me.value?.needs_key ? get("/api/sessions", signal) : Promise.resolve([])), []);
  return (
    <Screen title="Settings">
      <section class="card stack">
        <h2>This page</h2>
        <label class="row">Theme<select value={theme.value} onChange={(event) => setTheme(event.currentTarget.value as Theme)}>{["system", "light", "dark"].map((one) => <option>{one}</option>)}</select></label>
        <div class="small soft">Rondel {me.value?.version}. You are {me.value?.person.name || me.value?.person.id}{isAdmin ? ", an admin" : ""}.</div>
        {me.value?.needs_key && <button onClick={async () => { await api("DELETE", "/api/session"); location.reload(); }}>Log out</button>}
      </section>
      {me.value?.needs_key && (
        <section class="stack"><h2>Sessions</h2>
          <Loading loaded={sessions}>{(rows) => <Table label="Sessions" rows={rows} columns={[
            { name: "Key", of: (one) => one.key }, { name: "Since", of: (one) => one.created_at, show: (one) => moment(one.created_at) },
            { name: "Browser", of: (one) => one.browser },
            { name: "", of: () => "", show: (one) => <button onClick={async () => { await api("DELETE", `/api/sessions/${enc(one.id)}`); sessions.reload(); }}>End</button> },
          ]} />}</Loading></section>
      )}
      {isAdmin && (
        <section class="stack">
          <div class="row wrap"><h2 class="grow">Effective settings</h2><input type="search" placeholder="Filter" aria-label="Filter settings" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></div>
          <p class="soft small">A change is written to <code>rondel.toml</code> and applies at once. Edit the file for the rest: the gateway's part is reloaded, other settings need a restart.</p>
          <Loading loaded={settings}>{(rows) => <Table label="Settings" rows={rows} filter={filter} columns={[
            { name: "Key", of: (one) => one.key, show: (one) => <span class="mono">{one.key}</span> },
            { name: "Value", of: (one) => one.value, show: (one) => <Value key={`${one.key} ${one.value}`} setting={one} onChanged={settings.reload} /> },
            { name: "From", of: (one) => one.source },
          ]} />}</Loading>
        </section>
      )}
    </Screen>
  );
}

/** A value, and for one that can be changed now, a form for another one. */
function Value({ setting: { key, value, kind, source }, onChanged }: { setting: Setting; onChanged: () => void }) {
  const [draft, setDraft] = useState<string>();
  const [error, setError] = useState("");
  if (!kind) return <span class="mono">{value}</span>;
  if (draft === undefined) {
    return <span class="row"><span class="mono">{value}</span><button class="plain tiny" onClick={() => setDraft(value === "(none)" ? "" : value)}>Change</button></span>;
  }
  const choices = kind === "switch" ? ["true", "false"] : Array.isArray(kind) ? kind : null;
  const save = async (wanted: string | number | boolean | null) => {
    try {
      await api("PATCH", "/api/settings", { key, was: value, value: wanted });
      setDraft(undefined);
      onChanged();
    } catch (failure) { setError((failure as Error).message); }
  };
  const field = { "aria-label": key, value: draft, ref: (one: HTMLElement | null) => { if (one && !one.contains(document.activeElement) && !error) one.focus(); } };
  return (
    <form class="stack tight" onSubmit={(event) => { event.preventDefault(); void save(kind === "number" ? Number(draft) : kind === "switch" ? draft === "true" : draft); }}
      onKeyDown={(event) => { if (event.key === "Escape") setDraft(undefined); }}>
      {choices
        ? <select {...field} onChange={(event) => setDraft(event.currentTarget.value)}>{choices.map((one) => <option>{one}</option>)}</select>
        : <input {...field} type={kind === "number" ? "number" : "text"} step="any" required={kind === "number"} placeholder={kind === "engine" ? "provider:model, or a name of [engines]" : ""} onInput={(event) => setDraft(event.currentTarget.value)} />}
      <span class="row wrap">
        <button class="primary">Save</button>
        {source !== "default" && <button type="button" onClick={() => { void save(null); }}>Use the default</button>}
        <button type="button" onClick={() => setDraft(undefined)}>Cancel</button>
      </span>
      {error && <span class="bad small" role="alert">{error}</span>}
    </form>
  );
}
