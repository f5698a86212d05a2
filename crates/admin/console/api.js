// Asking the broker: everything goes through /api/v1.
import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const PREFIX = "/api/v1";

// What the API refuses, with its code for programs and its message for people.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The caller learns that a login is needed.
const listeners = new Set();
export function onLogin(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export async function call(method, path, body, signal) {
  const headers = { "x-polylogue-console": "1" };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(PREFIX + path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "the broker does not answer");
  }
  const text = await answer.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(answer.status, "internal", `the broker answers something else than JSON (status ${answer.status})`);
  }
  if (!answer.ok) {
    const said = value?.error ?? { code: "internal", message: `status ${answer.status}` };
    if (answer.status === 401 && !path.startsWith("/session")) listeners.forEach((listener) => listener());
    throw new Refused(answer.status, said.code, said.message);
  }
  return value;
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

// A name in a path.
export const part = (name) => encodeURIComponent(name);

// A query, without what is not there.
export function query(values) {
  const pairs = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? "?" + pairs.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&") : "";
}

// What a path answers now, asked again every `everyMs` while the page is looked at, and whenever `again` is called. What was answered before
// stays until there is something newer, unless the path is another one.
export function useAsk(path, everyMs = 0) {
  const [state, setState] = useState({ path: null, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const again = useCallback(() => setTurn((turn) => turn + 1), []);
  const latest = useRef(0);
  useEffect(() => {
    if (!path) return undefined;
    const controller = new AbortController();
    let timer = 0;
    const ask = async () => {
      const mine = ++latest.current;
      try {
        const data = await get(path, controller.signal);
        if (mine === latest.current) setState({ path, data, error: null });
      } catch (error) {
        if (error.name === "AbortError") return;
        if (mine === latest.current) setState((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
      if (everyMs && !controller.signal.aborted) timer = setTimeout(whenSeen, everyMs);
    };
    const whenSeen = () => (document.hidden ? (timer = setTimeout(whenSeen, everyMs)) : ask());
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, turn]);
  const current = state.path === path;
  return { data: current ? state.data : null, error: current ? state.error : null, again };
}
