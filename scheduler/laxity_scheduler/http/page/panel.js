// One job in words: why it stands where it stands, what it may take, and the commands to copy.

import { colours, line, prepare } from "./lanes.js";
import { call, jobPath } from "./service.js";
import { asOf, element, instant } from "./words.js";

const LOG_LINES = 15;

/** Fill the panel with a job. @param {HTMLElement} panel @param {string} id @param {() => void} close */
export async function openPanel(panel, id, close) {
  const button = element("button", { type: "button", className: "close", onclick: close, title: "Key Esc" }, "Close");
  panel.hidden = false;
  panel.dataset.job = id;
  if (!panel.contains(document.activeElement)) setTimeout(() => button.focus());
  try {
    const story = await call(jobPath(id, "story"));
    if (panel.dataset.job !== id) return;
    panel.replaceChildren(button, ...parts(story, Date.now() / 1000));
    const log = await call(jobPath(id, `logs?tail=${LOG_LINES}`)).catch(() => ({ text: "" }));
    if (log.text && panel.dataset.job === id) panel.append(element("h2", {}, "Worker 0"), element("pre", {}, log.text));
  } catch (error) {
    panel.replaceChildren(button, element("p", { className: "bad" }, String(/** @type {Error} */ (error).message)));
  }
}

/** @param {any} story @param {number} now */
function parts(story, now) {
  const made = [
    element("h2", { className: "title" }, story.id),
    element("p", { className: "name" }, asOf(story.standing, now)),
  ];
  if (story.reason) made.push(element("p", {}, asOf(story.reason, now)));
  made.push(table(story.facts.map((/** @type {string[]} */ fact) => [fact[0], asOf(fact[1], now)])));
  for (const link of story.links) made.push(element("p", {}, element("a", { href: link[1], rel: "noreferrer" }, link[0])));
  if (story.offers.length) {
    const rows = story.offers.map((/** @type {string} */ offer) => element("li", {}, asOf(offer, now)));
    made.push(element("h2", {}, "Instead this would do"), element("ol", {}, ...rows));
  }
  if (story.epochs.actual_s.length) made.push(element("h2", {}, "Seconds an epoch"), epochPlot(story.epochs));
  made.push(element("h2", {}, "Commands"), ...story.commands.map(command));
  const chain = story.chain.map((/** @type {any} */ row) => [
    instant(row.first_at, now), `${row.decision}: ${asOf(row.reason, now)}${row.times > 1 ? ` (${row.times} times)` : ""}`,
  ]);
  if (chain.length) made.push(element("h2", {}, "Why"), table(chain.reverse()));
  return made;
}

/** @param {string[][]} rows */
function table(rows) {
  const lines = rows.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, text)));
  return element("table", {}, element("tbody", {}, ...lines));
}

/** @param {string} text */
function command(text) {
  const copy = element("button", { type: "button" }, "Copy");
  copy.onclick = async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  };
  return element("div", { className: "command" }, element("code", {}, text), copy);
}

/** Epochs as dots, over the predicted P50 (line) and P90 (edge of the band). @param {any} epochs */
function epochPlot({ actual_s: actual, numbers, p50_s: p50, p90_s: p90 }) {
  const canvas = /** @type {HTMLCanvasElement} */ (document.createElement("canvas"));
  const last = actual.at(-1).toFixed(1);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The last epoch took ${last} s; predicted: P50 ${p50.toFixed(1)} s, P90 ${p90.toFixed(1)} s`);
  requestAnimationFrame(() => {
    const [width, height, shade] = [canvas.clientWidth, canvas.clientHeight, colours()];
    const pen = prepare(canvas, width, height);
    const most = Math.max(p90, ...actual) * 1.15;
    const y = (/** @type {number} */ value) => height - 18 - (value / most) * (height - 24);
    pen.fillStyle = shade.paper;
    pen.fillRect(0, 0, width, height);
    pen.fillStyle = shade.soft;
    pen.fillRect(40, y(p90), width, y(0) - y(p90));
    line(pen, 40, y(p50), width, y(p50), shade.w4, 1.5);
    pen.fillStyle = shade.ink;
    actual.forEach((/** @type {number} */ value, /** @type {number} */ i) => {
      pen.fillRect(46 + (i / Math.max(1, actual.length - 1)) * (width - 56) - 2, y(value) - 2, 4, 4);
    });
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = shade.dim;
    pen.fillText(`P90 ${p90.toFixed(1)}`, 0, y(p90) + 4);
    if (y(p50) - y(p90) > 11) pen.fillText(`P50 ${p50.toFixed(1)}`, 0, y(p50) + 4);
    pen.fillText(`epoch ${numbers[0]}`, 40, height - 4);
    pen.textAlign = "right";
    pen.fillText(String(numbers.at(-1)), width - 4, height - 4);
  });
  return canvas;
}
