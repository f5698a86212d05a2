// One queue.
import { html, useState } from "../vendor/htm-preact.js";
import { part, post, remove, useAsk } from "../api.js";
import { count } from "../format.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, Table, Tabs, numberOr, object, ofArguments, say, useDialog } from "../parts.js";
import { Messages } from "./messages.js";

// A message for an exchange; queues are what the default one's keys name.
export function Publish({ vhost, exchange, queue, onClose }) {
  const work = async (fields) => {
    const { routing_key, body, content_type, headers, transient } = fields;
    const message = { exchange, routing_key: routing_key ?? queue, body, headers: object(headers, "Headers"), persistent: !transient };
    if (content_type) message.content_type = content_type;
    const { routed } = await post(`/vhosts/${part(vhost)}/publish`, message);
    if (!routed) throw new Error("The message was routed to no queue and dropped.");
    say("Published.");
  };
  return html`<${Dialog} title=${`Publish to ${exchange || queue}`} action="Publish" onClose=${onClose} work=${work}>
    ${exchange && html`<${Field} label="Routing key"><input name="routing_key" autocomplete="off" /><//>`}
    <${Field} label="Body"><textarea name="body"></textarea><//>
    <${Field} label="Content type"><input name="content_type" placeholder="application/json" autocomplete="off" /><//>
    <${Field} label="Headers, as JSON"><textarea name="headers" style="min-height:3.5rem"></textarea><//>
    <${Field} check label="Transient"><input name="transient" type="checkbox" /><//>
  <//>`;
}

function Move({ vhost, name, onClose }) {
  const work = async ({ to, limit }) => {
    const wanted = { limit: numberOr(limit, 1000) };
    if (to) wanted.to = { queue: to };
    const answer = await post(`/vhosts/${part(vhost)}/queues/${part(name)}/move`, wanted);
    say(`${answer.moved} moved, ${answer.stay} stay${answer.why ? `: ${answer.why}` : ""}.`, answer.stay > 0);
  };
  return html`<${Dialog} title=${`Move messages of ${name}`} action="Move" onClose=${onClose} work=${work}>
    <${Field} label="To the queue" hint="If empty, each message goes back to the queue in which it was dead-lettered."><input name="to" autocomplete="off" /><//>
    <${Field} label="At most"><input name="limit" type="number" min="1" max="1000" defaultValue="1000" /><//>
  <//>`;
}

export function Queue({ vhost, name, tab }) {
  const path = `/vhosts/${part(vhost)}/queues/${part(name)}`;
  const asked = useAsk(path, 2000);
  const bindings = useAsk(tab === "bindings" ? `/vhosts/${part(vhost)}/bindings` : null, 5000);
  const dialog = useDialog();
  const [turn, setTurn] = useState(0);
  const above = { href: `#/queues/${part(vhost)}`, label: vhost === "/" ? "Queues" : `Queues of ${vhost}` };
  const queue = asked.data;
  if (!queue) return html`<${Head} title=${name} above=${above} /><${Failed} error=${asked.error} />`;
  const changed = (close) => () => {
    close();
    asked.again();
    setTurn(turn + 1);
  };
  const open = (view) => dialog.open((close) => view(changed(close)));
  const purge = (done) => html`<${Confirm} title=${`Delete what is ready in ${name}?`} text="Unacknowledged messages stay with their consumers." action="Delete messages" name=${name} onClose=${done}
    work=${() => remove(`${path}/messages`).then((answer) => say(`${answer.purged} messages deleted.`))} />`;
  const destroy = (done) => html`<${Confirm} title=${`Delete ${name}?`} text="The queue and its messages are deleted." action="Delete queue" name=${name} onClose=${done}
    work=${() => remove(path).then(() => {
      say(`Queue ${name} deleted.`);
      location.hash = above.href;
    })} />`;
  const number = (label, value) => html`<div class="card"><div class="label">${label}</div><div class="value">${count(value)}</div></div>`;
  const mine = (bindings.data?.bindings ?? []).filter((one) => one.destination === name && one.destination_type === "queue");
  return html`<${Head} title=${name} above=${above}>
      <button class="main" onClick=${() => open((done) => html`<${Publish} vhost=${vhost} exchange="" queue=${name} onClose=${done} />`)}>Publish</button>
      <button onClick=${() => open((done) => html`<${Move} vhost=${vhost} name=${name} onClose=${done} />`)}>Move messages</button>
      <button class="danger" onClick=${() => open(purge)}>Delete messages</button>
      <button class="danger" onClick=${() => open(destroy)}>Delete queue</button>
    <//>
    <${Failed} error=${asked.error} />
    <div class="bar"><${Badge}>${queue.type}<//>${queue.durable ? html`<${Badge} kind="good">durable<//>` : html`<${Badge} kind="warn">transient<//>`}${queue.auto_delete && html`<${Badge}>goes with its last consumer<//>`}</div>
    <div class="cards" style="margin-bottom:1rem">
      ${number("Ready", queue.ready)} ${number("Unsettled", queue.unsettled)} ${number("Delayed", queue.delayed)} ${number("Consumers", queue.consumers)}
    </div>
    <${Tabs} value=${tab} onChange=${(to) => (location.hash = `#/queues/${part(vhost)}/${part(name)}/${to}`)} tabs=${[["messages", "Messages"], ["bindings", "Bindings"], ["arguments", "Arguments"]]} />
    ${tab === "messages" &&
    (queue.topic
      ? html`<p class="soft">As they came, settled ones among them as long as they are kept; looking changes nothing. Kafka's clients read them as <code>${queue.topic}</code>.</p>
          <${Messages} topic=${queue.topic} partitions=${1} turn=${turn} />`
      : html`<p class="soft">An exclusive queue is looked into by its connection only.</p>`)}
    ${tab === "bindings" &&
    html`<${Table} label="Bindings" rows=${bindings.data ? mine : null} of=${(one) => JSON.stringify(one)} empty="No bindings but that of the default exchange." columns=${[
      { label: "From", kind: "name", cell: (one) => html`<a href=${`#/exchanges/${part(vhost)}`}>${one.source}</a>` },
      { label: "Routing key", cell: (one) => html`<code>${one.routing_key}</code>` },
      { label: "Arguments", cell: (one) => ofArguments(one.arguments) },
    ]} />`}
    ${tab === "arguments" && html`<div class="card"><pre>${JSON.stringify(queue.arguments, null, 2)}</pre></div>`}
    ${dialog.shown}`;
}
