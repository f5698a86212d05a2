// Numbers and times for people.
const NUMBER = new Intl.NumberFormat("en");

export const count = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

// Three digits, and never an exponent.
const three = (value) => (Math.abs(value) >= 999.5 ? String(Math.round(value)) : value.toPrecision(3));

// 1234 -> 1.23 k
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const steps = ["", " k", " M", " G", " T"];
  let at = 0;
  let rest = value;
  while (Math.abs(rest) >= 1000 && at < steps.length - 1) {
    rest /= 1000;
    at += 1;
  }
  return (at === 0 && Number.isInteger(rest) ? String(rest) : three(rest)) + steps[at];
}

export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const steps = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let rest = value;
  while (rest >= 1024 && at < steps.length - 1) {
    rest /= 1024;
    at += 1;
  }
  return `${at > 0 ? three(rest) : Number.isInteger(rest) ? rest : rest.toFixed(1)} ${steps[at]}`;
}

export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (n, width = 2) => String(n).padStart(width, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

// Base64 as hexadecimal digits and what can be read of them.
export function hex(base64) {
  const raw = atob(base64);
  const lines = [];
  for (let at = 0; at < raw.length; at += 16) {
    const row = raw.slice(at, at + 16);
    const digits = [...row].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
    const text = row.replace(/[^\x20-\x7e]/g, ".");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

// A key or a value on one line.
export function line(content) {
  if (!content) return "";
  return content.encoding === "text" ? content.data.replace(/\s+/g, " ").slice(0, 200) : `(${bytes(content.bytes)} binary)`;
}

// A key or a value in full: JSON is set out.
export function full(content) {
  if (content.encoding !== "text") return hex(content.data);
  const text = content.data;
  if (!content.cut && /^\s*[[{]/.test(text)) {
    try {
      return JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      return text;
    }
  }
  return text;
}
