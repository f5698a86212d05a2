// What pages are made of.
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

// What is said at the bottom for a moment.
let tell = () => {};
export function say(text, bad = false) {
  tell({ text, bad, id: Math.random() });
}

export function Toasts() {
  const [all, setAll] = useState([]);
  tell = (toast) => {
    setAll((before) => [...before.slice(-3), toast]);
    setTimeout(() => setAll((before) => before.filter((one) => one.id !== toast.id)), toast.bad ? 9000 : 4000);
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${all.map((toast) => html`<div key=${toast.id} class=${`toast ${toast.bad ? "bad" : ""}`}>${toast.text}</div>`)}
  </div>`;
}

// Does something and says how it went. Whether it went well.
export async function attempt(work, done) {
  try {
    await work();
    if (done) say(done);
    return true;
  } catch (error) {
    say(error.message, true);
    return false;
  }
}

export const Failed = ({ error }) => (error ? html`<div class="notice bad" role="alert">${error.message}</div>` : null);
export const Badge = ({ kind = "", children }) => html`<span class=${`badge ${kind}`}>${children}</span>`;

export function Head({ title, above, children }) {
  return html`<div class="head">
    <h1 tabindex="-1">${above && html`<a class="crumb" href=${above.href}>${above.label}</a> <span class="crumb">/</span> `}${title}</h1>
    <span class="grow"></span>
    ${children}
  </div>`;
}

// `columns`: [{ label, cell(row), kind }]; kind is `n` for numbers, `name`, `text` for what may be long, `act`, `cut`.
export function Table({ columns, rows, of, empty = "Nothing here.", label }) {
  if (!rows) return html`<div class="wrap"><div class="empty">…</div></div>`;
  return html`<div class="wrap">
    ${rows.length === 0
      ? html`<div class="empty">${empty}</div>`
      : html`<table aria-label=${label}>
          <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.kind ?? ""}>${column.label}</th>`)}</tr></thead>
          <tbody>
            ${rows.map((row) => html`<tr key=${of(row)}>${columns.map((column) => html`<td class=${column.kind ?? ""}>${column.cell(row)}</td>`)}</tr>`)}
          </tbody>
        </table>`}
  </div>`;
}

export function Search({ value, onChange, label = "Search" }) {
  const input = useRef(null);
  const timer = useRef(0);
  useEffect(() => {
    const slash = (event) => {
      const target = event.target;
      if (event.key !== "/" || target.closest("input, textarea, select, dialog")) return;
      event.preventDefault();
      input.current?.focus();
    };
    addEventListener("keydown", slash);
    return () => removeEventListener("keydown", slash);
  }, []);
  const later = (event) => {
    const text = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(text), 150);
  };
  return html`<input ref=${input} type="search" placeholder=${`${label} (/)`} aria-label=${label} value=${value} onInput=${later} />`;
}

export const PAGE = 50;

export function Pager({ offset, total, onMove, size = PAGE }) {
  if (total <= size && offset === 0) return null;
  return html`<div class="bar" style="margin-top:.7rem">
    <button disabled=${offset === 0} onClick=${() => onMove(Math.max(0, offset - size))}>Previous</button>
    <span class="soft">${total === 0 ? 0 : offset + 1} to ${Math.min(offset + size, total)} of ${total.toLocaleString("en")}</span>
    <button disabled=${offset + size >= total} onClick=${() => onMove(offset + size)}>Next</button>
  </div>`;
}

// A search and a place in a list, which begins anew with another search.
export function usePage() {
  const [state, setState] = useState({ search: "", offset: 0 });
  return {
    ...state,
    setSearch: (search) => setState({ search, offset: 0 }),
    setOffset: (offset) => setState((before) => ({ ...before, offset })),
  };
}

export function Tabs({ tabs, value, onChange }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const names = tabs.map(([name]) => name);
    const next = names[(names.indexOf(value) + step + names.length) % names.length];
    onChange(next);
    event.currentTarget.querySelector(`[data-tab="${next}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" onKeyDown=${move}>
    ${tabs.map(
      ([name, label]) => html`<button role="tab" data-tab=${name} aria-selected=${String(name === value)}
        tabindex=${name === value ? 0 : -1} onClick=${() => onChange(name)}>${label}</button>`,
    )}
  </div>`;
}

export function Field({ label, hint, check, children }) {
  return html`<label class=${check ? "field check" : "field"}>
    ${check ? children : null}<span>${label}</span>${check ? null : children}
    ${hint && html`<span>${hint}</span>`}
  </label>`;
}

// What the work of a dialog gives when the dialog stays.
export const STAY = Symbol("stay");

// A form in a dialog. `work` does it with what the form's fields say; what it throws is shown, and the dialog stays. What a field says at first
// is its `defaultValue`: a `value` is said again whenever the page is drawn anew, over what the user has written meanwhile. The dialog stays as
// well when `work` gives STAY: then there is something to look at first.
export function Dialog({ title, action, danger, onClose, work, children }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const own = dialog.current;
    own.showModal();
    // Closed by itself it gives the focus back to where it was.
    return () => own.close();
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.target));
    setBusy(true);
    setError(null);
    try {
      if ((await work(fields)) === STAY) setBusy(false);
      else onClose(true);
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} aria-label=${title} onCancel=${() => onClose(false)}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      <${Failed} error=${error} />
      ${children}
      <div class="ends">
        <button type="button" onClick=${() => onClose(false)}>Cancel</button>
        <button class=${danger ? "danger" : "main"} disabled=${busy}>${action}</button>
      </div>
    </form>
  </dialog>`;
}

// Asks before something that cannot be undone; with `name`, that has to be written first.
export function Confirm({ title, text, action, name, work, onClose }) {
  const [written, setWritten] = useState("");
  const checked = async (fields) => {
    if (name !== undefined && written !== name) throw new Error(`Write ${name} to go on.`);
    await work(fields);
  };
  return html`<${Dialog} title=${title} action=${action} danger onClose=${onClose} work=${checked}>
    <p>${text}</p>
    ${name !== undefined &&
    html`<${Field} label=${html`To go on, write <code>${name}</code>`}>
      <input value=${written} onInput=${(event) => setWritten(event.target.value)} autocomplete="off" aria-label="Name" />
    <//>`}
  <//>`;
}

// A dialog that is open, or none: `open(Component, props)`, and what is shown.
export function useDialog() {
  const [shown, setShown] = useState(null);
  const open = (render) => setShown(() => render);
  const close = () => setShown(null);
  return { open, close, shown: shown ? shown(close) : null };
}

// What can be chosen. The value is said each time: an option without one has none with this Preact.
export const options = (values) => values.map((value) => html`<option value=${value}>${value}</option>`);

export const numberOr = (text, otherwise) => (text === "" || text === undefined ? otherwise : Number(text));

// Lines of name=value.
export function pairs(text) {
  const all = {};
  for (const line of (text ?? "").split("\n")) {
    if (!line.trim()) continue;
    const at = line.indexOf("=");
    if (at < 0) throw new Error(`"${line}" has no = between a name and a value.`);
    all[line.slice(0, at).trim()] = line.slice(at + 1);
  }
  return all;
}

// What a table shows of arguments: those of a headers exchange tell its bindings apart.
export const ofArguments = (args) => (Object.keys(args ?? {}).length ? html`<code>${JSON.stringify(args)}</code>` : "");

// JSON in a field of a form; an empty one is an empty object.
export function object(text, what) {
  if (!text?.trim()) return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error(`${what} is no JSON object.`);
  return value;
}
