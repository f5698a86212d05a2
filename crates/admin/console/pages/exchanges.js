// Exchanges of a virtual host, and what is bound to them.
import { html } from "../vendor/htm-preact.js";
import { part, post, remove, useAsk } from "../api.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, Table, object, ofArguments, options, say, useDialog } from "../parts.js";
import { Publish } from "./queue.js";
import { Vhosts } from "./queues.js";

// All but those that federation declares for itself.
const TYPES = ["direct", "topic", "fanout", "headers", "x-consistent-hash", "x-local-random", "x-delayed-message"];

function NewExchange({ vhost, onClose }) {
  const work = async ({ name, type, transient, internal, args }) => {
    await post(`/vhosts/${part(vhost)}/exchanges`, { name, type, durable: !transient, internal: Boolean(internal), arguments: object(args, "Arguments") });
    say(`Exchange ${name} is there.`);
  };
  return html`<${Dialog} title="New exchange" action="Declare" onClose=${onClose} work=${work}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Type"><select name="type">${options(TYPES)}</select><//>
    <${Field} label="Arguments, as JSON" hint=${html`<code>x-delayed-message</code> wants one: <code>{"x-delayed-type": "direct"}</code>`}><textarea name="args"></textarea><//>
    <${Field} check label="Transient"><input name="transient" type="checkbox" /><//>
    <${Field} check label="Only exchanges may publish to it"><input name="internal" type="checkbox" /><//>
  <//>`;
}

function Bind({ vhost, source, onClose }) {
  const work = async ({ destination, destination_type, routing_key, args }) => {
    await post(`/vhosts/${part(vhost)}/bindings`, { source, destination, destination_type, routing_key, arguments: object(args, "Arguments") });
    say(`${destination} is bound to ${source}.`);
  };
  return html`<${Dialog} title=${`Bind to ${source}`} action="Bind" onClose=${onClose} work=${work}>
    <div class="pair">
      <${Field} label="What"><select name="destination_type"><option value="queue">a queue</option><option value="exchange">an exchange</option></select><//>
      <${Field} label="Name"><input name="destination" required autocomplete="off" /><//>
    </div>
    <${Field} label="Routing key"><input name="routing_key" autocomplete="off" /><//>
    <${Field} label="Arguments, as JSON"><textarea name="args" style="min-height:3.5rem"></textarea><//>
  <//>`;
}

export function Exchanges({ vhost }) {
  const asked = useAsk(`/vhosts/${part(vhost)}/exchanges`, 5000);
  const bindings = useAsk(`/vhosts/${part(vhost)}/bindings`, 5000);
  const dialog = useDialog();
  const changed = (close) => () => {
    close();
    asked.again();
    bindings.again();
  };
  const open = (view) => dialog.open((close) => view(changed(close)));
  const destroy = (name) => (done) => html`<${Confirm} title=${`Delete ${name}?`} text="Its bindings are deleted too." action="Delete exchange" name=${name} onClose=${done}
    work=${() => remove(`/vhosts/${part(vhost)}/exchanges/${part(name)}`).then(() => say(`Exchange ${name} deleted.`))} />`;
  const unbind = (one) => (done) => html`<${Confirm} title="Delete the binding?" text=${`${one.destination} receives no more messages from ${one.source} by ${one.routing_key || "no key"}.`}
    action="Unbind" onClose=${done} work=${() => post(`/vhosts/${part(vhost)}/bindings/delete`, one).then(() => say("Binding deleted."))} />`;
  const system = (one) => one.name.startsWith("amq.");
  return html`<${Head} title="Exchanges"><button class="main" onClick=${() => open((done) => html`<${NewExchange} vhost=${vhost} onClose=${done} />`)}>New exchange</button><//>
    <div class="bar"><span class="grow"></span><${Vhosts} vhost=${vhost} page="exchanges" /></div>
    <${Failed} error=${asked.error ?? bindings.error} />
    <${Table} label="Exchanges" rows=${asked.data?.exchanges} of=${(one) => one.name} columns=${[
      { label: "Name", kind: "name", cell: (one) => one.name },
      { label: "Type", cell: (one) => html`<${Badge}>${one.type}<//> ${!one.durable && html`<${Badge} kind="warn">transient<//>`} ${one.internal && html`<${Badge}>internal<//>`}` },
      { label: "Arguments", cell: (one) => ofArguments(one.arguments) },
      { label: "", kind: "act", cell: (one) => html`
        <button aria-label=${`Publish to ${one.name}`} disabled=${one.internal} onClick=${() => open((done) => html`<${Publish} vhost=${vhost} exchange=${one.name} onClose=${done} />`)}>Publish</button>${" "}
        <button aria-label=${`Bind to ${one.name}`} onClick=${() => open((done) => html`<${Bind} vhost=${vhost} source=${one.name} onClose=${done} />`)}>Bind</button>${" "}
        <button class="danger" aria-label=${`Delete ${one.name}`} disabled=${system(one)} onClick=${() => open(destroy(one.name))}>Delete</button>` },
    ]} />
    <h2>Bindings</h2>
    <${Table} label="Bindings" rows=${bindings.data?.bindings} of=${(one) => JSON.stringify(one)} empty="No bindings but those of the default exchange." columns=${[
      { label: "From", kind: "name", cell: (one) => one.source },
      { label: "To", kind: "name", cell: (one) => (one.destination_type === "queue" ? html`<a href=${`#/queues/${part(vhost)}/${part(one.destination)}`}>${one.destination}</a>` : html`${one.destination} <${Badge}>exchange<//>`) },
      { label: "Routing key", cell: (one) => html`<code>${one.routing_key}</code>` },
      { label: "Arguments", cell: (one) => ofArguments(one.arguments) },
      { label: "", kind: "act", cell: (one) => html`<button class="danger" aria-label=${`Unbind ${one.destination}`} onClick=${() => open(unbind(one))}>Unbind</button>` },
    ]} />
    ${dialog.shown}`;
}
