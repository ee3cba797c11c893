// Instants and durations in words, as the command line says them; and elements made of text only.

/** @param {number} seconds */
export function duration(seconds) {
  const sign = seconds < 0 ? "-" : "";
  const length = Math.abs(seconds);
  if (length < 9.95) return `${sign}${length.toFixed(1)}s`;
  let minutes = Math.floor(Math.round(length) / 60);
  const secs = Math.round(length) % 60;
  if (!minutes) return `${sign}${secs}s`;
  let hours = Math.floor(minutes / 60);
  minutes %= 60;
  if (!hours) return `${sign}${minutes}m${two(secs)}s`;
  const days = Math.floor(hours / 24);
  hours %= 24;
  return days ? `${sign}${days}d${two(hours)}h` : `${sign}${hours}h${two(minutes)}m`;
}

/** @param {number} number */
function two(number) {
  return String(number).padStart(2, "0");
}

/** Local time; with the date when it is over half a day away. @param {number} at @param {number} now */
export function clock(at, now) {
  const date = new Date(at * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (Math.abs(at - now) < 43_200) return `${time}:${two(date.getSeconds())}`;
  return `${date.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

/** "14:02:11 (in 3m20s)". @param {number} at @param {number} now */
export function instant(at, now) {
  return `${clock(at, now)} (${at >= now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`})`;
}

/** A sentence of the service with its instants in local time. @param {string} text @param {number} now */
export function asOf(text, now) {
  return text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (utc) => instant(Date.parse(utc) / 1000, now));
}

/** An element; strings among its children become text, never markup.
 * @param {string} tag @param {Record<string, any>} fields @param {...(Node | string)} children */
export function element(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

/** An id without the namespace `default`. @param {string} id */
export function short(id) {
  return id.replace(/^default\//, "");
}
