// Reports that were placed here.
import { html } from "../vendor/htm-preact.js";
import { part, useAsk } from "../api.js";
import { bytes, time } from "../format.js";
import { Failed, Head, Table } from "../parts.js";

export function Reports() {
  const asked = useAsk("/reports", 30000);
  const none = asked.data?.enabled
    ? "The directory has no reports (.html)."
    : "Name a directory with server.http_reports: what `polylogue-bench report --html` writes there is listed here.";
  return html`<${Head} title="Reports" />
    <${Failed} error=${asked.error} />
    <${Table} label="Reports" rows=${asked.data?.reports} of=${(one) => one.name} empty=${none} columns=${[
      { label: "Name", kind: "name", cell: (one) => html`<a href=${`/reports/${part(one.name)}`} target="_blank" rel="noopener">${one.name}</a>` },
      { label: "Written", cell: (one) => time(one.modified_ms).slice(0, 19) },
      { label: "Size", kind: "n", cell: (one) => bytes(one.bytes) },
    ]} />`;
}
