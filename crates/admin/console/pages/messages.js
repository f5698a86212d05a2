// The messages of a topic, or of a queue as the topic that it can be read as, whatever protocol wrote them.
import { html, useEffect, useState } from "../vendor/htm-preact.js";
import { get, part, query } from "../api.js";
import { bytes, count, full, line, time } from "../format.js";
import { Failed } from "../parts.js";

const LIMIT = 50;

function Content({ label, content, whole }) {
  if (!content) return html`<dt>${label}</dt><dd class="soft">none</dd>`;
  return html`<dt>${label}</dt>
    <dd>
      <span class="soft">${bytes(content.bytes)}${content.encoding === "base64" ? ", binary" : ""}</span>
      ${content.cut && html` <button class="plain" onClick=${whole}>Show all of it</button>`}
      <pre>${full(content)}</pre>
    </dd>`;
}

function Details({ topic, message, span }) {
  const [shown, setShown] = useState(message);
  const [error, setError] = useState(null);
  const whole = () => {
    const { partition, offset } = message;
    const path = `/topics/${part(topic)}/messages${query({ partition, offset, limit: 1, whole: true })}`;
    get(path).then((answer) => setShown(answer.messages[0] ?? message), setError);
  };
  return html`<tr class="open"><td colspan=${span}>
    <${Failed} error=${error} />
    <dl class="facts">
      <${Content} label="Key" content=${shown.key} whole=${whole} />
      <${Content} label="Value" content=${shown.value} whole=${whole} />
      ${shown.headers.length > 0 &&
      html`<dt>Headers</dt><dd>
        ${shown.headers.map((header) => html`<div><code>${header.name}</code>: ${header.value ? html`<code>${line(header.value)}</code>` : html`<span class="soft">none</span>`}</div>`)}
      </dd>`}
    </dl>
  </td></tr>`;
}

export function Messages({ topic, partitions, turn }) {
  const [partition, setPartition] = useState(partitions > 1 ? "" : "0");
  const [offset, setOffset] = useState("");
  const [state, setState] = useState({ data: null, error: null });
  const [open, setOpen] = useState(null);
  const [again, setAgain] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    const path = `/topics/${part(topic)}/messages${query({ partition, offset, limit: LIMIT })}`;
    get(path, controller.signal).then(
      (data) => setState({ data, error: null }),
      (error) => error.name === "AbortError" || setState((before) => ({ ...before, error })),
    );
    return () => controller.abort();
  }, [topic, partition, offset, again, turn]);
  const range = partition === "" ? null : state.data?.partitions.find((one) => one.partition === Number(partition));
  const messages = state.data?.messages ?? [];
  const first = messages[0]?.offset;
  const last = messages.at(-1)?.offset;
  const move = (to) => range && setOffset(String(Math.min(Math.max(to, range.log_start), range.high_watermark)));
  const key = (message) => `${message.partition}/${message.offset}`;
  const columns = ["Offset", "Time", "Key", "Value", "Headers"];
  const row = (message) => {
    const isOpen = open === key(message);
    return html`<tr key=${key(message)}>
        <td class="n"><button class="plain" aria-expanded=${String(isOpen)} onClick=${() => setOpen(isOpen ? null : key(message))}>
          ${partition === "" ? `${message.partition} / ${message.offset}` : message.offset}</button></td>
        <td class="mono">${time(message.timestamp_ms)}</td>
        <td class="cut mono">${line(message.key)}</td>
        <td class="cut mono">${message.value ? line(message.value) : html`<span class="soft">tombstone</span>`}</td>
        <td class="n">${message.headers.length}</td>
      </tr>
      ${isOpen && html`<${Details} key=${`${key(message)} open`} topic=${topic} message=${message} span=${columns.length} />`}`;
  };
  return html`<div class="bar">
      <label>Partition <select value=${partition} onChange=${(event) => {
        setPartition(event.target.value);
        setOffset("");
      }}>
        ${partitions > 1 && html`<option value="">all, the newest</option>`}
        ${Array.from({ length: partitions }, (_, number) => html`<option value=${number}>${number}</option>`)}
      </select></label>
      ${partition !== "" &&
      html`<label>From offset <input type="number" min="0" size="12" value=${offset} placeholder="the newest"
        onChange=${(event) => setOffset(event.target.value)} /></label>`}
      <button disabled=${!range || first === undefined || first <= range.log_start} onClick=${() => move(first - LIMIT)}>Older</button>
      <button disabled=${!range || last === undefined || last + 1 >= range.high_watermark} onClick=${() => move(last + 1)}>Newer</button>
      <button onClick=${() => {
        setOffset("");
        setAgain(again + 1);
      }}>Newest</button>
      <span class="grow"></span>
      ${range && html`<span class="soft">${count(range.log_start)} to ${count(range.high_watermark)}</span>`}
    </div>
    <${Failed} error=${state.error} />
    <div class="wrap">
      ${messages.length === 0
        ? html`<div class="empty">${state.data ? "No messages." : "…"}</div>`
        : html`<table aria-label="Messages">
            <thead><tr>${columns.map((label, at) => html`<th scope="col" class=${at === 0 || at === 4 ? "n" : ""}>${label}</th>`)}</tr></thead>
            <tbody>${messages.map(row)}</tbody>
          </table>`}
    </div>`;
}
