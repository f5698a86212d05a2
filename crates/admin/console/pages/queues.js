// Queues of a virtual host.
import { html } from "../vendor/htm-preact.js";
import { part, post, query, remove, useAsk } from "../api.js";
import { count } from "../format.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, PAGE, Pager, Search, Table, object, options, say, useDialog, usePage } from "../parts.js";

function NewVhost({ onClose }) {
  const work = async ({ name, description }) => {
    await post("/vhosts", { name, description });
    say(`The virtual host ${name} is there. Users need permissions in it.`);
  };
  return html`<${Dialog} title="New virtual host" action="Create" onClose=${onClose} work=${work}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Description"><input name="description" /><//>
  <//>`;
}

// Which virtual host is looked at, for the pages of what is declared in one.
export function Vhosts({ vhost, page }) {
  const asked = useAsk("/vhosts", 10000);
  const dialog = useDialog();
  const go = (name) => (location.hash = `#/${page}/${part(name)}`);
  const again = (close) => () => {
    close();
    asked.again();
  };
  const destroy = (close) => html`<${Confirm} title=${`Delete the virtual host ${vhost}?`} text="Everything in it is deleted: queues with their messages, exchanges, bindings, permissions."
    action="Delete virtual host" name=${vhost} onClose=${again(close)} work=${() => remove(`/vhosts/${part(vhost)}`).then(() => {
      say(`Virtual host ${vhost} deleted.`);
      go("/");
    })} />`;
  return html`<label>Virtual host <select value=${vhost} onChange=${(event) => go(event.target.value)}>
      ${(asked.data?.vhosts ?? [{ name: vhost }]).map((one) => html`<option value=${one.name}>${one.name}</option>`)}
    </select></label>
    <button onClick=${() => dialog.open((close) => html`<${NewVhost} onClose=${again(close)} />`)}>New virtual host</button>
    <button class="danger" onClick=${() => dialog.open(destroy)}>Delete virtual host</button>
    ${dialog.shown}`;
}

function NewQueue({ vhost, onClose }) {
  const work = async ({ name, type, transient, auto_delete, args }) => {
    const wanted = { name, durable: !transient, auto_delete: Boolean(auto_delete), arguments: object(args, "Arguments") };
    if (type) wanted.type = type;
    await post(`/vhosts/${part(vhost)}/queues`, wanted);
    say(`Queue ${name} is there.`);
    location.hash = `#/queues/${part(vhost)}/${part(name)}`;
  };
  return html`<${Dialog} title="New queue" action="Declare" onClose=${onClose} work=${work}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Type"><select name="type"><option value="">default of the virtual host</option>${options(["classic", "quorum", "stream"])}</select><//>
    <${Field} label="Arguments, as JSON"><textarea name="args" placeholder=${'{"x-message-ttl": 60000}'}></textarea><//>
    <${Field} check label="Transient"><input name="transient" type="checkbox" /><//>
    <${Field} check label="Auto-delete"><input name="auto_delete" type="checkbox" /><//>
  <//>`;
}

export function Queues({ vhost }) {
  const page = usePage();
  const dialog = useDialog();
  const asked = useAsk(`/vhosts/${part(vhost)}/queues${query({ search: page.search, offset: page.offset, limit: PAGE })}`, 3000);
  const columns = [
    { label: "Name", kind: "name", cell: (queue) => html`<a href=${`#/queues/${part(vhost)}/${part(queue.name)}`}>${queue.name}</a>` },
    { label: "Type", cell: (queue) => html`<${Badge}>${queue.type}<//> ${!queue.durable && html`<${Badge} kind="warn">transient<//>`} ${queue.exclusive && html`<${Badge}>exclusive<//>`}` },
    { label: "Ready", kind: "n", cell: (queue) => count(queue.ready) },
    { label: "Unsettled", kind: "n", cell: (queue) => count(queue.unsettled) },
    { label: "Delayed", kind: "n", cell: (queue) => count(queue.delayed) },
    { label: "Consumers", kind: "n", cell: (queue) => count(queue.consumers) },
  ];
  const declare = (close) => html`<${NewQueue} vhost=${vhost} onClose=${() => {
    close();
    asked.again();
  }} />`;
  return html`<${Head} title="Queues"><button class="main" onClick=${() => dialog.open(declare)}>New queue</button><//>
    <div class="bar"><${Search} value=${page.search} onChange=${page.setSearch} label="Search queues" /><span class="grow"></span><${Vhosts} vhost=${vhost} page="queues" /></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Queues" columns=${columns} rows=${asked.data?.queues} of=${(queue) => queue.name}
      empty=${page.search ? "No queue matches." : "There are no queues here."} />
    <${Pager} offset=${page.offset} total=${asked.data?.total ?? 0} onMove=${page.setOffset} />
    ${dialog.shown}`;
}
