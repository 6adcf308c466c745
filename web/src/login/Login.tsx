// Log-in by key. The key goes to the server once; the browser keeps only a cookie that no script can read.
import { useState } from "preact/hooks";
import type { Me } from "../api";
import { post } from "../api";

export function Login({ onDone }: { onDone: (me: Me) => void }) {
  const [key, setKey] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    try { onDone(await post<Me>("/api/session", { key })); } catch (failure) { setError((failure as Error).message); } finally { setBusy(false); }
  };
  return (
    <main class="screen">
      <form class="inner stack" style={{ maxWidth: "360px", marginTop: "15vh" }} onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <div class="brand"><span class="ring" />Rondel</div>
        <h1>Log in</h1>
        <label class="stack">Your key<input type="password" autocomplete="current-password" value={key} onInput={(event) => setKey(event.currentTarget.value)} autoFocus /></label>
        {error && <div class="note error" role="alert">{error}</div>}
        <button class="primary" disabled={!key || busy}>Log in</button>
        <p class="soft small">The person who runs this server gives you a key: <code>[gateway.keys]</code> in <code>rondel.toml</code>.</p>
      </form>
    </main>
  );
}
