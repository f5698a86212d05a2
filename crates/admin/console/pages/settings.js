// What is set, and what the server was started with.
import { html, useState } from "../vendor/htm-preact.js";
import { patch, useAsk } from "../api.js";
import { Badge, Dialog, Failed, Field, Head, Search, Table, Tabs, say, useDialog } from "../parts.js";

function Change({ scope, setting, onClose }) {
  const work = async ({ value, forget }) => {
    await patch(`/settings/${scope}`, forget ? { delete: [setting.name] } : { set: { [setting.name]: value } });
    say(`${setting.name} is changed.`);
  };
  return html`<${Dialog} title=${setting.name} action="Save" onClose=${onClose} work=${work}>
    <p class="soft">${setting.doc}</p>
    <${Field} label="Value"><input name="value" defaultValue=${setting.value ?? ""} autocomplete="off" /><//>
    <${Field} check label="Reset to the inherited value"><input name="forget" type="checkbox" /><//>
  <//>`;
}

function NewSetting({ scope, onClose }) {
  const work = async ({ name, value }) => {
    await patch(`/settings/${scope}`, { set: { [name]: value } });
    say(`${name} is set.`);
  };
  return html`<${Dialog} title="Set for all nodes" action="Save" onClose=${onClose} work=${work}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Value"><input name="value" autocomplete="off" /><//>
  <//>`;
}

function Scope({ scope, search }) {
  const asked = useAsk(`/settings/${scope}`);
  const dialog = useDialog();
  const open = (view) => dialog.open((close) => view(() => {
    close();
    asked.again();
  }));
  const rows = asked.data?.settings.filter((one) => `${one.name} ${one.doc}`.toLowerCase().includes(search.toLowerCase()));
  return html`<${Failed} error=${asked.error} />
    ${scope === "cluster" && html`<div class="bar"><span class="grow"></span><button class="main" onClick=${() => open((done) => html`<${NewSetting} scope=${scope} onClose=${done} />`)}>Set</button></div>`}
    <${Table} label="Settings" rows=${rows} of=${(one) => one.name} empty="Nothing." columns=${[
      { label: "Name", kind: "name", cell: (one) => html`<code>${one.name}</code><div class="soft">${one.doc}</div>` },
      { label: "Value", kind: "text", cell: (one) => html`<code>${one.sensitive ? "•••" : (one.value ?? "")}</code>` },
      { label: "Set by", cell: (one) => html`<${Badge} kind=${one.source.startsWith("DYNAMIC") ? "good" : ""}>${one.source.toLowerCase().replace(/_config$/, "").replaceAll("_", " ")}<//>` },
      { label: "", kind: "act", cell: (one) => (one.read_only ? html`<span class="soft">at the start only</span>` : html`<button aria-label=${`Change ${one.name}`} onClick=${() => open((done) => html`<${Change} scope=${scope} setting=${one} onClose=${done} />`)}>Change</button>`) },
    ]} />
    ${dialog.shown}`;
}

function Options({ search }) {
  const asked = useAsk("/config");
  const rows = asked.data?.options.filter((one) => `${one.name} ${one.doc}`.toLowerCase().includes(search.toLowerCase()));
  return html`<${Failed} error=${asked.error} />
    <${Table} label="Options" rows=${rows} of=${(one) => one.name} empty="Nothing." columns=${[
      { label: "Name", kind: "name", cell: (one) => html`<code>${one.name}</code><div class="soft">${one.doc}</div>` },
      { label: "Value", kind: "text", cell: (one) => html`<code>${one.value}</code>` },
      { label: "Default", kind: "text", cell: (one) => html`<code>${one.default}</code>` },
      { label: "Set by", cell: (one) => html`<${Badge} kind=${one.source === "default" ? "" : "good"}>${one.source}<//>` },
    ]} />`;
}

export function Settings({ tab }) {
  const [search, setSearch] = useState("");
  return html`<${Head} title="Settings" />
    <${Tabs} value=${tab} onChange=${(to) => (location.hash = `#/settings/${to}`)} tabs=${[["node", "This node"], ["cluster", "All nodes"], ["options", "Startup options"]]} />
    <div class="bar"><${Search} value=${search} onChange=${setSearch} label="Search settings" /></div>
    ${tab === "options" ? html`<${Options} search=${search} />` : html`<${Scope} key=${tab} scope=${tab === "cluster" ? "cluster" : "node"} search=${search} />`}`;
}
