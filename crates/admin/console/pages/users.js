// Users, what they may do, and how much of it.
import { html } from "../vendor/htm-preact.js";
import { part, post, put, remove, useAsk } from "../api.js";
import { bytes } from "../format.js";
import { Badge, Confirm, Dialog, Failed, Field, Head, Table, Tabs, numberOr, options, say, useDialog } from "../parts.js";

const RESOURCES = ["topic", "group", "cluster", "transactional-id", "user"];
const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe-configs", "alter-configs", "idempotent-write", "cluster-action"];

function PutUser({ user, onClose }) {
  const work = async ({ name, password, tags }) => {
    const wanted = { tags: tags.split(/[\s,]+/).filter(Boolean) };
    if (password) wanted.password = password;
    await put(`/users/${part(user?.name ?? name)}`, wanted);
    say(`User ${user?.name ?? name} is ${user ? "changed" : "there"}.`);
  };
  return html`<${Dialog} title=${user ? `Change ${user.name}` : "New user"} action="Save" onClose=${onClose} work=${work}>
    ${!user && html`<${Field} label="Name"><input name="name" required autocomplete="off" /><//>`}
    <${Field} label="Password" hint=${user ? "Unchanged if left empty." : undefined}><input name="password" type="password" autocomplete="new-password" required=${!user} /><//>
    <${Field} label="Tags" hint="administrator, monitoring, policymaker, management"><input name="tags" defaultValue=${user?.tags.join(" ") ?? ""} autocomplete="off" /><//>
  <//>`;
}

function UsersTab({ dialog }) {
  const asked = useAsk("/users");
  const open = (view) => dialog.open((close) => view(() => {
    close();
    asked.again();
  }));
  const destroy = (user) => (done) => html`<${Confirm} title=${`Delete ${user.name}?`} text="Permissions go with the user; access control lists stay." action="Delete user" name=${user.name}
    onClose=${done} work=${() => remove(`/users/${part(user.name)}`).then(() => say(`User ${user.name} deleted.`))} />`;
  return html`<div class="bar"><span class="grow"></span><button class="main" onClick=${() => open((done) => html`<${PutUser} onClose=${done} />`)}>New user</button></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Users" rows=${asked.data?.users} of=${(user) => user.name} columns=${[
      { label: "Name", kind: "name", cell: (user) => user.name },
      { label: "Tags", cell: (user) => user.tags.map((tag) => html`<${Badge} kind=${tag === "administrator" ? "warn" : ""}>${tag}<//> `) },
      { label: "Can log in by", cell: (user) => user.mechanisms.join(", ") || html`<span class="soft">nothing</span>` },
      { label: "", kind: "act", cell: (user) => html`
        <button aria-label=${`Change ${user.name}`} onClick=${() => open((done) => html`<${PutUser} user=${user} onClose=${done} />`)}>Change</button>${" "}
        <button class="danger" aria-label=${`Delete ${user.name}`} onClick=${() => open(destroy(user))}>Delete</button>` },
    ]} />`;
}

function PutPermission({ onClose }) {
  const work = async ({ user, vhost, configure, write, read }) => {
    await put(`/vhosts/${part(vhost)}/permissions/${part(user)}`, { configure, write, read });
    say(`${user} has permissions in ${vhost}.`);
  };
  return html`<${Dialog} title="Permissions" action="Save" onClose=${onClose} work=${work}>
    <div class="pair">
      <${Field} label="User"><input name="user" required autocomplete="off" /><//>
      <${Field} label="Virtual host"><input name="vhost" defaultValue="/" required autocomplete="off" /><//>
    </div>
    <p class="soft">Regular expressions for names; nothing at all means none.</p>
    <${Field} label="May declare and delete"><input name="configure" defaultValue=".*" autocomplete="off" /><//>
    <${Field} label="May publish to"><input name="write" defaultValue=".*" autocomplete="off" /><//>
    <${Field} label="May consume"><input name="read" defaultValue=".*" autocomplete="off" /><//>
  <//>`;
}

function PermissionsTab({ dialog }) {
  const asked = useAsk("/permissions");
  const open = (view) => dialog.open((close) => view(() => {
    close();
    asked.again();
  }));
  const take = (one) => (done) => html`<${Confirm} title="Delete the permissions?" text=${`${one.user} cannot use the virtual host ${one.vhost} any more.`} action="Delete" onClose=${done}
    work=${() => remove(`/vhosts/${part(one.vhost)}/permissions/${part(one.user)}`).then(() => say("Permissions deleted."))} />`;
  const code = (text) => html`<code>${text}</code>`;
  return html`<div class="bar"><span class="soft">For clients of RabbitMQ's protocols.</span><span class="grow"></span><button class="main" onClick=${() => open((done) => html`<${PutPermission} onClose=${done} />`)}>Set permissions</button></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Permissions" rows=${asked.data?.permissions} of=${(one) => `${one.vhost} ${one.user}`} columns=${[
      { label: "User", kind: "name", cell: (one) => one.user },
      { label: "Virtual host", cell: (one) => one.vhost },
      { label: "Declare", cell: (one) => code(one.configure) },
      { label: "Publish", cell: (one) => code(one.write) },
      { label: "Consume", cell: (one) => code(one.read) },
      { label: "", kind: "act", cell: (one) => html`<button class="danger" aria-label=${`Delete the permissions of ${one.user}`} onClick=${() => open(take(one))}>Delete</button>` },
    ]} />`;
}

function NewAcl({ onClose }) {
  const work = async (fields) => {
    await post("/acls", { acls: [{ ...fields, host: fields.host || "*" }] });
    say("ACL added.");
  };
  return html`<${Dialog} title="New entry" action="Add" onClose=${onClose} work=${work}>
    <div class="pair">
      <${Field} label="Who"><input name="principal" defaultValue="User:" required autocomplete="off" /><//>
      <${Field} label="From"><input name="host" placeholder="*" autocomplete="off" /><//>
      <${Field} label="What"><select name="permission">${options(["allow", "deny"])}</select><//>
      <${Field} label="Operation"><select name="operation">${options(OPERATIONS)}</select><//>
      <${Field} label="On"><select name="resource">${options(RESOURCES)}</select><//>
      <${Field} label="Pattern"><select name="pattern">${options(["literal", "prefixed"])}</select><//>
    </div>
    <${Field} label="Name" hint="* for all; kafka-cluster for the cluster"><input name="name" required autocomplete="off" /><//>
  <//>`;
}

function AclsTab({ dialog }) {
  const asked = useAsk("/acls");
  const open = (view) => dialog.open((close) => view(() => {
    close();
    asked.again();
  }));
  const take = (one) => (done) => html`<${Confirm} title="Delete the ACL?" text=${`${one.principal}: ${one.permission} ${one.operation} on ${one.resource} ${one.name}`} action="Delete" onClose=${done}
    work=${() => post("/acls/delete", { acls: [one] }).then(() => say("ACL deleted."))} />`;
  return html`<div class="bar"><span class="soft">For clients of Kafka's protocol that log in.</span><span class="grow"></span><button class="main" onClick=${() => open((done) => html`<${NewAcl} onClose=${done} />`)}>New entry</button></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Access control lists" rows=${asked.data?.acls} of=${(one) => JSON.stringify(one)} empty="No ACLs: only administrators have access." columns=${[
      { label: "Who", kind: "name", cell: (one) => one.principal },
      { label: "What", cell: (one) => html`<${Badge} kind=${one.permission === "deny" ? "bad" : "good"}>${one.permission}<//> ${one.operation}` },
      { label: "On", kind: "name", cell: (one) => html`${one.resource} <code>${one.name}${one.pattern === "prefixed" ? "*" : ""}</code>` },
      { label: "From", cell: (one) => html`<code>${one.host}</code>` },
      { label: "", kind: "act", cell: (one) => html`<button class="danger" aria-label=${`Delete the ACL of ${one.principal}`} onClick=${() => open(take(one))}>Delete</button>` },
    ]} />`;
}

function PutQuota({ onClose }) {
  const work = async ({ user, client_id, produce, fetch, request }) => {
    const of = {};
    if (user === "*") of.other_users = true;
    else if (user) of.user = user;
    if (client_id === "*") of.other_client_ids = true;
    else if (client_id) of.client_id = client_id;
    const quota = { of };
    const set = (name, text) => numberOr(text, null) !== null && (quota[name] = Number(text));
    set("produce_bytes_per_second", produce);
    set("fetch_bytes_per_second", fetch);
    set("request_percent", request);
    await put("/quotas", quota);
    say("Quota set.");
  };
  return html`<${Dialog} title="Quota" action="Save" onClose=${onClose} work=${work}>
    <div class="pair">
      <${Field} label="User" hint="* for all that have none of their own"><input name="user" autocomplete="off" /><//>
      <${Field} label="Client id" hint="* likewise"><input name="client_id" autocomplete="off" /><//>
    </div>
    <${Field} label="Written, bytes per second"><input name="produce" type="number" min="0" step="any" /><//>
    <${Field} label="Read, bytes per second"><input name="fetch" type="number" min="0" step="any" /><//>
    <${Field} label="CPU, percent of one core"><input name="request" type="number" min="0" step="any" /><//>
  <//>`;
}

function QuotasTab({ dialog }) {
  const asked = useAsk("/quotas");
  const open = (view) => dialog.open((close) => view(() => {
    close();
    asked.again();
  }));
  const name = (value, others) => (others ? html`<span class="soft">all others</span>` : (value ?? html`<span class="soft">any</span>`));
  const rate = (value) => (value === undefined || value === null ? "–" : `${bytes(value)}/s`);
  const take = (one) => (done) => html`<${Confirm} title="Delete the quota?" text="It no longer limits its users and clients." action="Delete" onClose=${done}
    work=${() => post("/quotas/delete", one.of).then(() => say("Quota deleted."))} />`;
  return html`<div class="bar"><span class="grow"></span><button class="main" onClick=${() => open((done) => html`<${PutQuota} onClose=${done} />`)}>Set a quota</button></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Quotas" rows=${asked.data?.quotas} of=${(one) => JSON.stringify(one.of)} empty="There are no quotas." columns=${[
      { label: "User", kind: "name", cell: (one) => name(one.of.user, one.of.other_users) },
      { label: "Client id", kind: "name", cell: (one) => name(one.of.client_id, one.of.other_client_ids) },
      { label: "Written", kind: "n", cell: (one) => rate(one.produce_bytes_per_second) },
      { label: "Read", kind: "n", cell: (one) => rate(one.fetch_bytes_per_second) },
      { label: "Threads", kind: "n", cell: (one) => (one.request_percent ?? null) === null ? "–" : `${one.request_percent} %` },
      { label: "", kind: "act", cell: (one) => html`<button class="danger" aria-label="Delete the quota" onClick=${() => open(take(one))}>Delete</button>` },
    ]} />`;
}

export function Users({ tab }) {
  const dialog = useDialog();
  const tabs = { users: UsersTab, permissions: PermissionsTab, acls: AclsTab, quotas: QuotasTab };
  const Tab = tabs[tab] ?? UsersTab;
  return html`<${Head} title="Users" />
    <${Tabs} value=${tab} onChange=${(to) => (location.hash = `#/users/${to}`)} tabs=${[["users", "Users"], ["permissions", "Permissions"], ["acls", "Access control lists"], ["quotas", "Quotas"]]} />
    <${Tab} key=${tab} dialog=${dialog} />
    ${dialog.shown}`;
}
