// Groups of consumers, and how far they are behind.
import { html, useState } from "../vendor/htm-preact.js";
import { part, post, query, remove, useAsk } from "../api.js";
import { count, duration } from "../format.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, PAGE, Pager, STAY, Search, Table, options, say, useDialog, usePage } from "../parts.js";

const kind = (state) => ({ Stable: "good", Empty: "", Dead: "bad" })[state] ?? "warn";
const lag = (value) => (value > 0 ? html`<b>${count(value)}</b>` : count(value));

export function Groups() {
  const page = usePage();
  const asked = useAsk(`/groups${query({ search: page.search, offset: page.offset, limit: PAGE })}`, 5000);
  const columns = [
    { label: "Name", kind: "name", cell: (group) => html`<a href=${`#/groups/${part(group.group)}`}>${group.group}</a>` },
    { label: "State", cell: (group) => html`<${Badge} kind=${kind(group.state)}>${group.state}<//>` },
    { label: "Members", kind: "n", cell: (group) => count(group.members) },
    { label: "Lag, messages", kind: "n", cell: (group) => lag(group.lag) },
    { label: "Protocol", cell: (group) => group.protocol_type || html`<span class="soft">offsets only</span>` },
  ];
  return html`<${Head} title="Groups" />
    <div class="bar"><${Search} value=${page.search} onChange=${page.setSearch} label="Search groups" /></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Groups" columns=${columns} rows=${asked.data?.groups} of=${(group) => group.group}
      empty=${page.search ? "No group matches." : "There are no groups yet: a consumer creates its group."} />
    <${Pager} offset=${page.offset} total=${asked.data?.total ?? 0} onMove=${page.setOffset} />`;
}

// Where the fields of a reset say to go.
function target({ to, value }) {
  if (to === "earliest" || to === "latest") return to;
  const time = Date.parse(value);
  if (to === "time" && Number.isNaN(time)) throw new Error("That is no time: write for example 2026-01-31T12:00:00Z.");
  if (to === "time") return { time_ms: time };
  // An empty field is 0 to JavaScript, and that would be everything once more.
  if (!/^[+-]?\d+$/.test(value.trim())) throw new Error("Write a whole number.");
  return to === "offset" ? { offset: Number(value) } : { shift_by: Number(value) };
}

function Reset({ group, topics, onClose }) {
  const [seen, setSeen] = useState(null);
  const work = async (fields) => {
    const wanted = { topics: (fields.topic ? [fields.topic] : topics).map((topic) => ({ topic })), to: target(fields) };
    const said = JSON.stringify(wanted);
    const path = `/groups/${part(group)}/reset`;
    if (seen?.said !== said) {
      const { offsets } = await post(path, { ...wanted, validate_only: true });
      setSeen({ said, offsets });
      return STAY;
    }
    const answer = await post(path, wanted);
    say(`${answer.offsets.length} offsets are set.`);
  };
  return html`<${Dialog} title=${`Reset offsets of ${group}`} action=${seen ? "Reset" : "Show what changes"} danger onClose=${onClose} work=${work}>
    <${Field} label="Topic"><select name="topic"><option value="">all</option>${options(topics)}</select><//>
    <div class="pair">
      <${Field} label="To"><select name="to">
        <option value="earliest">the oldest message</option><option value="latest">the end</option><option value="offset">an offset</option>
        <option value="shift">so many messages on or back</option><option value="time">the first message at a time</option>
      </select><//>
      <${Field} label="Offset, number or time"><input name="value" autocomplete="off" /><//>
    </div>
    ${seen && html`<${Table} label="Preview" rows=${seen.offsets} of=${(one) => `${one.topic}/${one.partition}`} columns=${[
      { label: "Topic", kind: "name", cell: (one) => one.topic },
      { label: "Partition", kind: "n", cell: (one) => one.partition },
      { label: "Now", kind: "n", cell: (one) => count(one.before) },
      { label: "Then", kind: "n", cell: (one) => html`${count(one.offset)}${one.note && html`<div class="soft">${one.note}</div>`}` },
    ]} />`}
  <//>`;
}

export function Group({ name }) {
  const asked = useAsk(`/groups/${part(name)}`, 3000);
  const dialog = useDialog();
  const above = { href: "#/groups", label: "Groups" };
  const group = asked.data;
  if (!group) return html`<${Head} title=${name} above=${above} /><${Failed} error=${asked.error} />`;
  const topics = [...new Set(group.offsets.map((one) => one.topic))];
  const busy = group.members.length > 0;
  const done = (close) => () => {
    close();
    asked.again();
  };
  const destroy = (close) => html`<${Confirm} title=${`Delete ${name}?`} text="Its committed offsets are deleted: consumers start where auto.offset.reset says." action="Delete group" name=${name}
    onClose=${done(close)} work=${() => remove(`/groups/${part(name)}`).then(() => {
      say(`Group ${name} deleted.`);
      location.hash = "#/groups";
    })} />`;
  const why = busy ? "Stop its members first." : undefined;
  return html`<${Head} title=${name} above=${above}>
      <button disabled=${busy || topics.length === 0} title=${why} onClick=${() => dialog.open((close) => html`<${Reset} group=${name} topics=${topics} onClose=${done(close)} />`)}>Reset offsets</button>
      <button class="danger" disabled=${busy} title=${why} onClick=${() => dialog.open(destroy)}>Delete group</button>
    <//>
    <${Failed} error=${asked.error} />
    <div class="bar"><${Badge} kind=${kind(group.state)}>${group.state}<//><span class="soft">${[group.protocol_type, group.protocol].filter(Boolean).join(", ")}</span></div>
    <h2>Offsets</h2>
    <${Table} label="Offsets" rows=${group.offsets} of=${(one) => `${one.topic}/${one.partition}`} empty="No committed offsets." columns=${[
      { label: "Topic", kind: "name", cell: (one) => html`<a href=${`#/topics/${part(one.topic)}`}>${one.topic}</a>` },
      { label: "Partition", kind: "n", cell: (one) => one.partition },
      { label: "Offset", kind: "n", cell: (one) => count(one.offset) },
      { label: "End", kind: "n", cell: (one) => count(one.high_watermark) },
      { label: "Lag", kind: "n", cell: (one) => lag(one.lag) },
      { label: "Behind", kind: "n", cell: (one) => (one.lag_ms === null ? "–" : duration(one.lag_ms)) },
    ]} />
    <h2>Members</h2>
    <${Table} label="Members" rows=${group.members} of=${(one) => one.member} empty="No members." columns=${[
      { label: "Client", kind: "name", cell: (one) => html`${one.client}<div class="soft mono">${one.member}</div>` },
      { label: "From", cell: (one) => html`<code>${one.host}</code>` },
      { label: "Partitions", cell: (one) => one.assignment.map((has) => html`<div>${has.topic}: ${has.partitions.join(", ")}</div>`) },
    ]} />
    ${dialog.shown}`;
}
