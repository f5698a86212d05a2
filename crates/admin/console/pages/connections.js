// Who is connected.
import { html } from "../vendor/htm-preact.js";
import { query, remove, useAsk } from "../api.js";
import { time } from "../format.js";
import { Badge, Confirm, Failed, Head, PAGE, Pager, Search, Table, say, useDialog, usePage } from "../parts.js";

export function Connections() {
  const page = usePage();
  const dialog = useDialog();
  const asked = useAsk(`/connections${query({ search: page.search, offset: page.offset, limit: PAGE })}`, 3000);
  const soft = (text) => text ?? html`<span class="soft">–</span>`;
  const end = (one) => (close) => html`<${Confirm} title="End the connection?" text=${`${one.client ?? one.peer} may connect again.`} action="End connection"
    onClose=${() => {
      close();
      asked.again();
    }} work=${() => remove(`/connections/${one.id}`).then(() => say("The connection is being closed."))} />`;
  const columns = [
    { label: "From", cell: (one) => html`<code>${one.peer}</code>` },
    { label: "Protocol", cell: (one) => html`${one.protocol} ${one.tls && html`<${Badge} kind="good">TLS<//>`}` },
    { label: "User", cell: (one) => soft(one.user) },
    { label: "Client", kind: "name", cell: (one) => html`${soft(one.client)}${one.software && html`<div class="soft">${one.software}</div>`}` },
    { label: "Virtual host", cell: (one) => soft(one.vhost) },
    { label: "Channels", kind: "n", cell: (one) => one.channels ?? "" },
    { label: "Since", cell: (one) => time(one.since_ms).slice(0, 19) },
    { label: "", kind: "act", cell: (one) => html`<button class="danger" aria-label=${`End ${one.peer}`} onClick=${() => dialog.open(end(one))}>End</button>` },
  ];
  return html`<${Head} title="Connections" />
    <div class="bar"><${Search} value=${page.search} onChange=${page.setSearch} label="Search connections" /></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Connections" columns=${columns} rows=${asked.data?.connections} of=${(one) => one.id}
      empty=${page.search ? "No connection matches." : "No client is connected."} />
    <${Pager} offset=${page.offset} total=${asked.data?.total ?? 0} onMove=${page.setOffset} />
    ${dialog.shown}`;
}
