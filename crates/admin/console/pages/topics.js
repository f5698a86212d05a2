// All topics.
import { html } from "../vendor/htm-preact.js";
import { part, post, query, useAsk } from "../api.js";
import { bytes, count } from "../format.js";
import { Badge, Dialog, Failed, Field, Head, PAGE, Pager, Search, Table, numberOr, pairs, say, useDialog, usePage } from "../parts.js";

function NewTopic({ onClose }) {
  const work = async ({ name, partitions, config }) => {
    await post("/topics", { name, partitions: numberOr(partitions, undefined), config: pairs(config) });
    say(`Topic ${name} is there.`);
    location.hash = `#/topics/${part(name)}`;
  };
  return html`<${Dialog} title="New topic" action="Create" onClose=${onClose} work=${work}>
    <${Field} label="Name"><input name="name" required autocomplete="off" /><//>
    <${Field} label="Partitions" hint="As the broker's settings say, without a number."><input name="partitions" type="number" min="1" /><//>
    <${Field} label="Settings, one a line: name=value"><textarea name="config" placeholder="retention.ms=86400000"></textarea><//>
  <//>`;
}

export function Topics() {
  const page = usePage();
  const dialog = useDialog();
  const asked = useAsk(`/topics${query({ search: page.search, offset: page.offset, limit: PAGE, internal: false })}`, 5000);
  const columns = [
    { label: "Name", kind: "name", cell: (topic) => html`<a href=${`#/topics/${part(topic.name)}`}>${topic.name}</a>` },
    { label: "Partitions", kind: "n", cell: (topic) => count(topic.partitions) },
    { label: "Messages", kind: "n", cell: (topic) => count(topic.messages) },
    { label: "Size", kind: "n", cell: (topic) => bytes(topic.bytes) },
    { label: "Durability", cell: (topic) => html`<${Badge} kind=${topic.durability === "sync" ? "good" : ""}>${topic.durability}<//>` },
  ];
  return html`<${Head} title="Topics">
      <button class="main" onClick=${() => dialog.open((close) => html`<${NewTopic} onClose=${close} />`)}>New topic</button>
    <//>
    <div class="bar"><${Search} value=${page.search} onChange=${page.setSearch} label="Search topics" /></div>
    <${Failed} error=${asked.error} />
    <${Table} label="Topics" columns=${columns} rows=${asked.data?.topics} of=${(topic) => topic.name}
      empty=${page.search ? "No topic matches." : "There are no topics yet."} />
    <${Pager} offset=${page.offset} total=${asked.data?.total ?? 0} onMove=${page.setOffset} />
    ${dialog.shown}`;
}
