// Numbers, sizes, times and names as people read them.

export const number = value => Number(value).toLocaleString("en");

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return `${value.toFixed(unit && value < 10 ? 1 : 0)} ${UNITS[unit]}`;
}

// What this broker does not know.
export const known = format => value => value === null || value === undefined ? "–" : format(value);

export function rate(value) {
  if (value === undefined) return "…";
  return `${value === 0 ? "0" : value < 10 ? value.toFixed(1) : number(Math.round(value))}/s`;
}

export const byteRate = value => value === undefined ? "…" : `${bytes(value)}/s`;

export function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min` : `${s} s`;
}

export const milliseconds = value => `${value < 10 ? value.toFixed(1) : number(Math.round(value))} ms`;

const pad = (value, length = 2) => String(value).padStart(length, "0");

// Today only the time; timestamps may be any number that a producer has written.
export function time(ms) {
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)}`;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock : `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock}`;
}

export function wholeTime(ms) {
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : `${at.toISOString()} (${ms})`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

// topic-2 before topic-10.
export const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;

export const topicLink = name => `#/topics/${encodeURIComponent(name)}`;
export const groupLink = name => `#/groups/${encodeURIComponent(name)}`;
