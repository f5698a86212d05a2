// The console: which page is shown, the way around, and the login.
import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { call, get, onLogin, post, useAsk } from "./api.js";
import { Failed, Field, Head, Toasts, attempt } from "./parts.js";
import { Overview, useRates } from "./pages/overview.js";
import { Topics } from "./pages/topics.js";
import { Topic } from "./pages/topic.js";
import { Group, Groups } from "./pages/groups.js";
import { Queues } from "./pages/queues.js";
import { Queue } from "./pages/queue.js";
import { Exchanges } from "./pages/exchanges.js";
import { Connections } from "./pages/connections.js";
import { Users } from "./pages/users.js";
import { Settings } from "./pages/settings.js";
import { Reports } from "./pages/reports.js";

const PAGES = [
  ["overview", "Overview"],
  ["topics", "Topics"],
  ["groups", "Groups"],
  ["queues", "Queues"],
  ["exchanges", "Exchanges"],
  ["connections", "Connections"],
  ["users", "Users"],
  ["settings", "Settings"],
  ["reports", "Reports"],
];
const THEMES = ["auto", "light", "dark"];

// The parts of the address behind #.
const place = () => location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);

function usePlace() {
  const [parts, setParts] = useState(place());
  useEffect(() => {
    const moved = () => {
      setParts(place());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return parts;
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("polylogue-theme") ?? "auto");
  useEffect(() => {
    localStorage.setItem("polylogue-theme", theme);
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function Login({ onDone }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const { name, password } = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    setError(null);
    try {
      onDone(await post("/session", { name, password }));
    } catch (refused) {
      setError(refused.status === 401 ? new Error("The name or the password is wrong.") : refused);
      setBusy(false);
    }
  };
  return html`<main class="login card">
    <form onSubmit=${submit}>
      <p class="brand"><img src="icon.svg" alt="" />polylogue</p>
      <${Failed} error=${error} />
      <${Field} label="Administrator"><input name="name" autocomplete="username" required autofocus /><//>
      <${Field} label="Password"><input name="password" type="password" autocomplete="current-password" required /><//>
      <button class="main" disabled=${busy}>Log in</button>
    </form>
  </main>`;
}

function Page({ parts, rates }) {
  const [page = "overview", one, other] = parts;
  switch (page) {
    case "overview":
      return html`<${Overview} rates=${rates} />`;
    case "topics":
      return one ? html`<${Topic} key=${one} name=${one} tab=${other ?? "messages"} />` : html`<${Topics} />`;
    case "groups":
      return one ? html`<${Group} key=${one} name=${one} />` : html`<${Groups} />`;
    case "queues":
      return other ? html`<${Queue} key=${`${one}/${other}`} vhost=${one} name=${other} tab=${parts[3] ?? "messages"} />` : html`<${Queues} vhost=${one ?? "/"} />`;
    case "exchanges":
      return html`<${Exchanges} vhost=${one ?? "/"} />`;
    case "connections":
      return html`<${Connections} />`;
    case "users":
      return html`<${Users} tab=${one ?? "users"} />`;
    case "settings":
      return html`<${Settings} tab=${one ?? "node"} />`;
    case "reports":
      return html`<${Reports} />`;
    default:
      return html`<${Head} title="Nothing here" /><p><a href="#/overview">Overview</a></p>`;
  }
}

function Shell({ session, onOut }) {
  const parts = usePlace();
  const [theme, turn] = useTheme();
  const [closed, setClosed] = useState(true);
  const status = useAsk("/status", 2000);
  const rates = useRates(status.data);
  const page = parts[0] ?? "overview";
  useEffect(() => {
    setClosed(true);
    const label = PAGES.find(([name]) => name === page)?.[1] ?? "polylogue";
    document.title = parts[1] ? `${parts.at(-1)} · ${label}` : `${label} · polylogue`;
  }, [parts.join("/")]);
  const out = () => attempt(() => call("DELETE", "/session"), "Logged out.").then(onOut);
  return html`<a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    }}>To the content</a>
    <div class="shell">
      <header class=${`side ${closed ? "closed" : ""}`}>
        <div class="brand">
          <img src="icon.svg" alt="" />polylogue
          <button class="menu" aria-expanded=${String(!closed)} onClick=${() => setClosed(!closed)}>Menu</button>
        </div>
        <nav aria-label="Pages">
          ${PAGES.map(([name, label]) => html`<a href=${`#/${name}`} aria-current=${name === page ? "page" : undefined}>${label}</a>`)}
        </nav>
        <div class="foot">
          ${status.error && html`<span class="badge bad">${status.error.message}</span>`}
          ${status.data && html`<span>node ${status.data.node}, ${status.data.version}</span>`}
          <button onClick=${turn} aria-label=${`Colours: ${theme}`}>Colours: ${theme}</button>
          ${session.name && html`<span>${session.name}</span><button onClick=${out}>Log out</button>`}
        </div>
      </header>
      <main id="main" tabindex="-1">
        ${status.data?.refuses_writes && html`<div class="notice bad" role="alert">Messages are refused: ${status.data.refuses_writes}</div>`}
        ${status.data?.disk_alarm && html`<div class="notice warn" role="alert">Publishers to queues are blocked: ${status.data.disk_alarm}</div>`}
        ${status.data?.memory_alarm && html`<div class="notice warn" role="alert">Publishers to queues are blocked: ${status.data.memory_alarm}</div>`}
        <${Page} parts=${parts} rates=${rates} />
      </main>
    </div>`;
}

function App() {
  const [session, setSession] = useState(null);
  const [error, setError] = useState(null);
  const ask = () => get("/session").then(setSession, setError);
  useEffect(() => {
    ask();
    return onLogin(() => setSession({ asks: true, name: null }));
  }, []);
  if (error) return html`<main class="login"><${Failed} error=${error} /><button onClick=${() => location.reload()}>Try again</button></main>`;
  if (!session) return null;
  const inside = !session.asks || session.name;
  return html`${inside ? html`<${Shell} session=${session} onOut=${ask} />` : html`<${Login} onDone=${setSession} />`}<${Toasts} />`;
}

render(html`<${App} />`, document.getElementById("app"));
