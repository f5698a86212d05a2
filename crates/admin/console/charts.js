// Lines over time, drawn in SVG.
import { html } from "./vendor/htm-preact.js";

const WIDTH = 520;
const HEIGHT = 150;
const LEFT = 64;
const BOTTOM = 18;
const TOP = 8;

// The next number above that is easy to read; of bytes one whose half is, too.
function ceiling(value, binary) {
  if (!(value > 0)) return 1;
  const unit = binary ? 1024 ** Math.floor(Math.log2(value) / 10) : 1;
  const power = 10 ** Math.floor(Math.log10(value / unit));
  const steps = [1, 2, 4, 6, 8, 10];
  return unit * power * (steps.find((step) => step * unit * power >= value) ?? 10);
}

// `series`: [{ label, values }], each with one value a point in time, the newest last; `points` is how many fit.
export function Lines({ title, series, points, seconds, format, binary = false }) {
  const top = ceiling(Math.max(0, ...series.flatMap((one) => one.values.filter((value) => Number.isFinite(value)))), binary);
  const x = (at, length) => LEFT + ((points - length + at) / Math.max(points - 1, 1)) * (WIDTH - LEFT - 6);
  const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const path = (values) => {
    let pen = "M";
    const steps = [];
    values.forEach((value, at) => {
      if (!Number.isFinite(value)) {
        pen = "M";
        return;
      }
      steps.push(`${pen}${x(at, values.length).toFixed(1)} ${y(value).toFixed(1)}`);
      pen = "L";
    });
    return steps.join("");
  };
  const last = (one) => one.values.at(-1);
  const said = series.map((one) => `${one.label}: ${format(last(one))}`).join(", ");
  return html`<figure class="chart">
    <figcaption>
      <span class="chart-title">${title}</span>
      ${series.map(
        (one, at) => html`<span class="legend"><span class=${`swatch s${at}`}></span>${one.label} <b>${format(last(one))}</b></span>`,
      )}
    </figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${`${title}. Now ${said}`}>
      ${[0, 0.5, 1].map(
        (part) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 6} y1=${y(top * part)} y2=${y(top * part)} />
          <text class="tick" x=${LEFT - 6} y=${y(top * part) + 4} text-anchor="end">${format(top * part)}</text>`,
      )}
      <text class="tick" x=${LEFT} y=${HEIGHT - 4}>${`−${Math.round((points - 1) * seconds)} s`}</text>
      <text class="tick" x=${WIDTH - 6} y=${HEIGHT - 4} text-anchor="end">now</text>
      ${series.map((one, at) => html`<path class=${`line s${at}`} d=${path(one.values)} />`)}
    </svg>
  </figure>`;
}
