// Settings: the effective values and where each comes from; the theme, and the sessions of this person.
import { useState } from "preact/hooks";
import { api, enc, get } from "../api";
import { moment } from "../format";
import { Loading, Screen, Table, useLoaded } from "../parts/common";
import { me, setTheme, theme, type Theme } from "../state";

interface Setting { key: string; value: string; source: string }
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
          <p class="soft small">Edit <code>rondel.toml</code>; the gateway's part is reloaded at once, the rest after a restart.</p>
          <Loading loaded={settings}>{(rows) => <Table label="Settings" rows={rows} filter={filter} columns={[
            { name: "Key", of: (one) => one.key, show: (one) => <span class="mono">{one.key}</span> }, { name: "Value", of: (one) => one.value, show: (one) => <span class="mono">{one.value}</span> }, { name: "From", of: (one) => one.source },
          ]} />}</Loading>
        </section>
      )}
    </Screen>
  );
}
