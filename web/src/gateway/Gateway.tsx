// Requests of the gateway, live, errors first. No content: only who, what, why and how much.
import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { clock, count, dollars, seconds } from "../format";
import { Empty, Loading, Screen, Table, useLoaded } from "../parts/common";
import { link } from "../state";

interface Request { id: string; at: number; dialect?: string; asked?: string; key?: string; client?: string; rule?: string; why?: string; engine?: string; model?: string; attempts?: number; status?: number; outcome: string; error?: string; warnings?: string[]; dropped?: string[]; usage?: { tokens_in?: number; tokens_out?: number; cached_in?: number }; cost_nanousd?: number; first_token_s?: number; seconds?: number; streams?: boolean; relayed?: boolean; trace?: string }

export function Gateway() {
  const [requests, setRequests] = useState<Map<string, Request>>(new Map());
  const [filter, setFilter] = useState("");
  const [errorsFirst, setErrorsFirst] = useState(true);
  const [open, setOpen] = useState<string>("");
  const loaded = useLoaded<{ requests: Request[] }>((signal) => get("/api/requests", signal), []);
  useEffect(() => { if (loaded.data) setRequests(new Map(loaded.data.requests.map((one) => [one.id, one]))); }, [loaded.data]);
  useEffect(() => {
    const source = new EventSource("/api/requests/events");
    source.addEventListener("request", (message) => {
      const one = JSON.parse((message as MessageEvent<string>).data) as Request;
      setRequests((known) => { const next = new Map([[one.id, one], ...[...known].filter(([id]) => id !== one.id)]); return new Map([...next].slice(0, 1_000)); });
    });
    return () => source.close();
  }, []);
  const bad = (one: Request) => one.outcome === "failed" || one.outcome === "refused";
  const rows = [...requests.values()].sort((a, b) => (errorsFirst && bad(a) !== bad(b) ? (bad(a) ? -1 : 1) : b.at - a.at));
  const chosen = requests.get(open);
  return (
    <Screen title="Gateway" actions={<>
      <label class="row small"><input type="checkbox" checked={errorsFirst} onChange={(event) => setErrorsFirst(event.currentTarget.checked)} />Errors first</label>
      <input type="search" placeholder="Filter" aria-label="Filter" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} /></>}>
      <Loading loaded={loaded}>{() => rows.length ? (
        <>
          <Table label="Requests" rows={rows} filter={filter} onOpen={(one) => setOpen(open === one.id ? "" : one.id)} isOn={(one) => one.id === open} columns={[
            { name: "Time", of: (one) => one.at, show: (one) => <span class="when">{clock(one.at)}</span> },
            { name: "Outcome", of: (one) => one.outcome, show: (one) => <span class={bad(one) ? "bad" : one.outcome === "open" ? "warn" : ""}>{one.outcome}{one.status ? ` ${one.status}` : ""}</span> },
            { name: "Key", of: (one) => one.key }, { name: "Client", of: (one) => one.client },
            { name: "Asked", of: (one) => one.asked },
            { name: "Answered", of: (one) => one.engine || one.model },
            { name: "Rule", of: (one) => one.rule },
            { name: "In", of: (one) => one.usage?.tokens_in ?? 0, show: (one) => (one.usage?.tokens_in ? count(one.usage.tokens_in) : ""), numeric: true },
            { name: "Cached", of: (one) => one.usage?.cached_in ?? 0, show: (one) => (one.usage?.cached_in ? count(one.usage.cached_in) : ""), numeric: true },
            { name: "Out", of: (one) => one.usage?.tokens_out ?? 0, show: (one) => (one.usage?.tokens_out ? count(one.usage.tokens_out) : ""), numeric: true },
            { name: "Cost", of: (one) => one.cost_nanousd ?? 0, show: (one) => one.cost_nanousd === undefined || one.cost_nanousd === null ? "" : dollars(one.cost_nanousd / 1e9), numeric: true },
            { name: "Took", of: (one) => one.seconds, show: (one) => (one.outcome === "open" ? "" : seconds(one.seconds)), numeric: true },
          ]} />
          {chosen && (
            <section class="card stack" aria-label="Request">
              <h2>Request <span class="mono">{chosen.id}</span></h2>
              <div class="kv">
                {([["Why", chosen.why], ["Dialect", chosen.dialect], ["Attempts", chosen.attempts], ["First token", chosen.first_token_s ? seconds(chosen.first_token_s) : ""], ["Streamed", chosen.streams ? "yes" : "no"], ["Relayed as bytes", chosen.relayed ? "yes" : "no"], ["Left out", chosen.dropped?.join(", ")], ["Warnings", chosen.warnings?.join("; ")]] as [string, string | number | undefined][])
                  .filter(([, value]) => value).map(([name, value]) => <><span>{name}</span><b>{value}</b></>)}
              </div>
              {chosen.error && <div class="note error">{chosen.error}</div>}
              {chosen.trace
                ? <a href={link("traces", chosen.trace)}>What was asked and answered</a>
                : <p class="soft small">Its content was not stored. <code>gateway.trace</code> in the <a href="#/settings">settings</a> stores that of later requests.</p>}
            </section>
          )}
        </>
      ) : <Empty>No requests yet. Point a program at this address, for example with <code>rondel code</code>.</Empty>}</Loading>
    </Screen>
  );
}
