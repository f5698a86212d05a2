// What the broker does now.
import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";
import { bytes, count, duration, short } from "../format.js";
import { Lines } from "../charts.js";
import { Badge, Head, Table } from "../parts.js";

const POINTS = 91;
const SECONDS = 2;
const STAGES = [["queue", "waiting"], ["write", "writing"], ["flush", "flushing"], ["deliver", "answering"]];

// Below what 99 of 100 of the latest times were, in milliseconds, as near as buckets tell; NaN where there was none.
function tail(now, before) {
  const counts = now.buckets.map((count, at) => count - (before?.buckets[at] ?? 0));
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return NaN;
  let left = all * 0.99;
  for (let at = 0; at < counts.length; at += 1) {
    const from = at === 0 ? 0 : now.bounds_us[at - 1];
    const to = now.bounds_us[at] ?? from;
    if (left <= counts[at]) return (from + ((to - from) * left) / Math.max(counts[at], 1)) / 1000;
    left -= counts[at];
  }
  return NaN;
}

// How fast what is counted grows, for as long as the console is open: points [{ at, status, rates }].
export function useRates(status) {
  const [points, setPoints] = useState([]);
  const last = useRef(null);
  useEffect(() => {
    if (!status) return;
    const now = { at: status.uptime_ms, status };
    const before = last.current;
    last.current = now;
    // A broker that was started again counts from the beginning.
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    if (seconds <= 0) return;
    const rate = (of) => Math.max(0, (of(status) - of(before.status)) / seconds);
    const protocols = {};
    for (const one of status.protocols) {
      const of = (name) => (from) => from.protocols.find((other) => other.protocol === one.protocol)?.[name] ?? 0;
      protocols[one.protocol] = { requests: rate(of("requests")), received: rate(of("received_bytes")), sent: rate(of("sent_bytes")) };
    }
    const figure = (name) => (from) => from.figures[name] ?? 0;
    const tails = {};
    for (const stage of status.stages) tails[stage.stage] = tail(stage, before.status.stages.find((one) => one.stage === stage.stage));
    const point = {
      protocols,
      written: rate(figure("journal_bytes")),
      payload: rate(figure("journal_payload_bytes")),
      flushes: rate(figure("journal_flushes")),
      tails,
      memory: figure("store_tail_bytes")(status),
    };
    setPoints((all) => [...all.slice(1 - POINTS), point]);
  }, [status]);
  return { points, status };
}

const card = (label, value, href) => html`<div class="card">
  <div class="label">${href ? html`<a href=${href}>${label}</a>` : label}</div>
  <div class="value">${value}</div>
</div>`;

// Since the start. A backup is made by `polylogue backup`, not here.
const backups = (figures) => {
  const { backup_running: running, backups_completed: completed, backups_failed: failed } = figures;
  return `${running ? "one in progress, " : ""}${count(completed)} completed, ${count(failed)} failed`;
};

export function Overview({ rates }) {
  const { points, status } = rates;
  if (!status) return html`<${Head} title="Overview" />`;
  const protocols = status.protocols.map((one) => one.protocol);
  const of = (pick) => points.map(pick);
  const rate = (name) => protocols.map((protocol) => ({ label: protocol, values: of((point) => point.protocols[protocol]?.[name]) }));
  const perSecond = (value) => `${bytes(value)}/s`;
  const chart = (title, series, format) => html`<${Lines} title=${title} series=${series} points=${POINTS} seconds=${SECONDS} format=${format} binary=${format === perSecond} />`;
  const ms = (value) => (Number.isFinite(value) ? `${value.toPrecision(3)} ms` : "–");
  return html`<${Head} title="Overview">
      <${Badge} kind=${status.ready ? "good" : "warn"}>${status.ready ? "healthy" : "not ready"}<//>
    <//>
    <div class="cards">
      ${card("Topics", count(status.topics), "#/topics")} ${card("Partitions", count(status.partitions))}
      ${card("Connections", count(status.connections), "#/connections")} ${card("Stored", bytes(status.figures.store_live_bytes))}
      ${card("Memory", bytes(status.memory_bytes))} ${card("Free on disk", bytes(status.disk_free_bytes))} ${card("Running for", duration(status.uptime_ms))}
    </div>
    <div class="charts">
      ${chart("Requests per second", rate("requests"), short)}
      ${chart("Received, bytes per second", rate("received"), perSecond)}
      ${chart("Sent, bytes per second", rate("sent"), perSecond)}
      ${chart("Written to the log", [{ label: "messages", values: of((p) => p.payload) }, { label: "all", values: of((p) => p.written) }], perSecond)}
      ${chart("Latency, p99", STAGES.map(([name, label]) => ({ label, values: of((p) => p.tails[name] ?? NaN) })), ms)}
      ${chart("Flushes per second", [{ label: "flushes", values: of((p) => p.flushes) }], short)}
    </div>
    <h2>Listeners</h2>
    <${Table} label="Listeners" rows=${status.listeners} of=${(one) => one.bound} columns=${[
      { label: "Protocol", cell: (one) => html`${one.protocol} ${one.tls && html`<${Badge} kind="good">TLS<//>`}` },
      { label: "Address", cell: (one) => html`<code>${one.bound}</code>` },
      { label: "Advertised", cell: (one) => (one.advertised ? html`<code>${one.advertised}</code>` : html`<span class="soft">the address at which clients connect</span>`) },
    ]} />
    <h2>This node</h2>
    <dl class="facts card">
      <dt>Cluster</dt><dd><code>${status.cluster_id}</code></dd>
      <dt>Node</dt><dd>${status.node}</dd>
      <dt>Version</dt><dd>${status.version}</dd>
      <dt>Backups</dt><dd>${backups(status.figures)}</dd>
    </dl>`;
}
