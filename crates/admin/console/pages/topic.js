// One topic.
import { html, useState } from "../vendor/htm-preact.js";
import { part, patch, post, remove, useAsk } from "../api.js";
import { bytes, count } from "../format.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, Table, Tabs, numberOr, pairs, say, useDialog } from "../parts.js";
import { Messages } from "./messages.js";

function Write({ topic, partitions, onClose }) {
  const work = async ({ key, value, partition, headers, tombstone }) => {
    const list = Object.entries(pairs(headers)).map(([name, value]) => ({ name, value }));
    const message = { headers: list, partition: numberOr(partition, undefined) };
    if (key !== "") message.key = key;
    if (!tombstone) message.value = value;
    const written = await post(`/topics/${part(topic)}/messages`, message);
    say(`Written to partition ${written.partition} at offset ${written.offset}.`);
  };
  return html`<${Dialog} title=${`Write to ${topic}`} action="Write" onClose=${onClose} work=${work}>
    <${Field} label="Value"><textarea name="value"></textarea><//>
    <div class="pair">
      <${Field} label="Key"><input name="key" autocomplete="off" /><//>
      <${Field} label="Partition" hint="If empty, chosen by the key, or at random without a key."><input name="partition" type="number" min="0" max=${partitions - 1} /><//>
    </div>
    <${Field} label="Headers, one a line: name=value"><textarea name="headers" style="min-height:3.5rem"></textarea><//>
    <${Field} check label="A tombstone: no value at all"><input name="tombstone" type="checkbox" /><//>
  <//>`;
}

function Change({ topic, entry, onClose }) {
  const work = async ({ value, inherit }) => {
    await patch(`/topics/${part(topic)}`, inherit ? { delete: [entry.name] } : { set: { [entry.name]: value } });
    say(`${entry.name} is changed.`);
  };
  return html`<${Dialog} title=${entry.name} action="Save" onClose=${onClose} work=${work}>
    <${Field} label="Value"><input name="value" defaultValue=${entry.value} autocomplete="off" /><//>
    ${entry.source === "topic" && html`<${Field} check label="Inherit from the broker"><input name="inherit" type="checkbox" /><//>`}
  <//>`;
}

function More({ topic, partitions, onClose }) {
  const work = async ({ count }) => {
    await patch(`/topics/${part(topic)}`, { partitions: Number(count) });
    say(`${topic} has ${count} partitions.`);
  };
  return html`<${Dialog} title="More partitions" action="Add" onClose=${onClose} work=${work}>
    <p>Keys go to other partitions from then on, and partitions cannot be taken away again.</p>
    <${Field} label="Partitions"><input name="count" type="number" min=${partitions + 1} defaultValue=${partitions + 1} required /><//>
  <//>`;
}

export function Topic({ name, tab }) {
  const asked = useAsk(`/topics/${part(name)}`, 5000);
  const dialog = useDialog();
  const [turn, setTurn] = useState(0);
  const topic = asked.data;
  const above = { href: "#/topics", label: "Topics" };
  if (!topic) return html`<${Head} title=${name} above=${above} /><${Failed} error=${asked.error} />`;
  const changed = (close) => () => {
    close();
    asked.again();
    setTurn(turn + 1);
  };
  const open = (view) => dialog.open((close) => view(changed(close)));
  const partitions = topic.partitions.length;
  const sum = (of) => topic.partitions.reduce((all, one) => all + (of(one) ?? 0), 0);
  const purge = (done) => html`<${Confirm} title=${`Delete all messages of ${name}?`} text="They are deleted for every consumer. Offsets do not restart."
    action="Delete messages" name=${name} onClose=${done} work=${() => remove(`/topics/${part(name)}/messages`).then(() => say("Messages deleted."))} />`;
  const destroy = (done) => html`<${Confirm} title=${`Delete ${name}?`} text="The topic and all its messages are deleted." action="Delete topic" name=${name}
    onClose=${done} work=${() => remove(`/topics/${part(name)}`).then(() => {
      say(`Topic ${name} deleted.`);
      location.hash = "#/topics";
    })} />`;
  return html`<${Head} title=${name} above=${above}>
      <button class="main" onClick=${() => open((done) => html`<${Write} topic=${name} partitions=${partitions} onClose=${done} />`)}>Write</button>
      <button onClick=${() => open((done) => html`<${More} topic=${name} partitions=${partitions} onClose=${done} />`)}>More partitions</button>
      <button class="danger" onClick=${() => open(purge)}>Delete messages</button>
      <button class="danger" onClick=${() => open(destroy)}>Delete topic</button>
    <//>
    <${Failed} error=${asked.error} />
    <div class="bar soft">
      <span>${count(partitions)} ${partitions === 1 ? "partition" : "partitions"}</span><span>·</span>
      <span>${count(sum((one) => one.high_watermark - one.log_start))} messages</span><span>·</span><span>${bytes(sum((one) => one.bytes))}</span>
    </div>
    <${Tabs} value=${tab} onChange=${(to) => (location.hash = `#/topics/${part(name)}/${to}`)}
      tabs=${[["messages", "Messages"], ["partitions", "Partitions"], ["settings", "Settings"]]} />
    ${tab === "messages" && html`<${Messages} topic=${name} partitions=${partitions} turn=${turn} />`}
    ${tab === "partitions" &&
    html`<${Table} label="Partitions" rows=${topic.partitions} of=${(one) => one.partition} columns=${[
      { label: "Partition", kind: "n", cell: (one) => one.partition },
      { label: "First offset", kind: "n", cell: (one) => count(one.log_start) },
      { label: "End", kind: "n", cell: (one) => count(one.high_watermark) },
      { label: "Size", kind: "n", cell: (one) => bytes(one.bytes) },
      { label: "Leader epoch", kind: "n", cell: (one) => one.leader_epoch },
    ]} />`}
    ${tab === "settings" &&
    html`<${Table} label="Settings" rows=${topic.config} of=${(one) => one.name} columns=${[
      { label: "Name", kind: "name", cell: (one) => html`<code>${one.name}</code> ${!one.has_effect && html`<${Badge}>no effect here<//>`}` },
      { label: "Value", kind: "text", cell: (one) => html`<code>${one.value}</code>` },
      { label: "Set by", cell: (one) => html`<${Badge} kind=${one.source === "topic" ? "good" : ""}>${one.source}<//>` },
      { label: "", kind: "act", cell: (one) => html`<button aria-label=${`Change ${one.name}`} onClick=${() => open((done) => html`<${Change} topic=${name} entry=${one} onClose=${done} />`)}>Change</button>` },
    ]} />`}
    ${dialog.shown}`;
}
