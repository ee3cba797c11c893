// Instants and durations in words, as the command line says them; and elements made of text only.
const two = (number) => String(number).padStart(2, "0");
export function duration(seconds) {
  const [sign, length] = [seconds < 0 ? "-" : "", Math.abs(seconds)];
  if (length < 9.95) return `${sign}${length.toFixed(1)}s`;
  const whole = Math.round(length);
  const [secs, minutes, hours] = [whole % 60, Math.floor(whole / 60) % 60, Math.floor(whole / 3600)];
  if (hours >= 24) return `${sign}${Math.floor(hours / 24)}d${two(hours % 24)}h`;
  if (hours) return `${sign}${hours}h${two(minutes)}m`;
  return minutes ? `${sign}${minutes}m${two(secs)}s` : `${sign}${secs}s`;
}

/** Local time; with the date when it is over half a day away. */
export function clock(at, now) {
  const date = new Date(at * 1000);
  const time = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (Math.abs(at - now) < 43_200) return `${time}:${two(date.getSeconds())}`;
  return `${date.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

/** "14:02:11 (in 3m20s)". */
export const instant = (at, now) => `${clock(at, now)} (${at >= now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`})`;

/** A sentence of the service with its instants in local time. */
export const asOf = (text, now) => text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, (utc) => instant(Date.parse(utc) / 1000, now));

/** An element; strings among its children become text, never markup.
 * @param {string} tag @param {Record<string, any>} fields @param {...(Node | string)} children */
export function element(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

/** An id without the namespace `default`. */
export const short = (id) => id.replace(/^default\//, "");
