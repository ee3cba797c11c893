// One job in words: why it stands where it stands, what it may take, and the commands to copy.

import { clear, colours, line, penIn } from "./lanes.js";
import { call, jobPath } from "./service.js";
import { asOf, duration, element, instant } from "./words.js";

/** Show a job in the panel; what somebody marks there is left as it is. */
export async function openPanel(panel, id) {
  const [close, body] = panel.children;
  const isNew = panel.hidden || panel.dataset.job !== id;
  if (!isNew && !getSelection()?.isCollapsed) return;
  panel.dataset.job = id;
  panel.hidden = false;
  if (isNew) close.focus();
  try {
    const [story, log] = await Promise.all([call(jobPath(id, "story")), call(jobPath(id, "logs?tail=15")).catch(() => ({}))]);
    const lines = log.text ? [element("h2", {}, "Worker 0"), element("pre", {}, log.text)] : [];
    if (panel.dataset.job === id) body.replaceChildren(...parts(story, Date.now() / 1000), ...lines);
  } catch (/** @type {any} */ error) {
    body.replaceChildren(element("p", { className: "bad" }, error.message));
  }
}

function parts(story, now) {
  const made = [element("h2", {}, story.id), element("p", {}, element("strong", {}, asOf(story.standing, now)))];
  if (story.reason) made.push(element("p", {}, asOf(story.reason, now)));
  made.push(table(story.facts.map((fact) => [fact[0], asOf(fact[1], now)])));
  for (const link of story.links) made.push(element("p", {}, element("a", { href: link[1], rel: "noreferrer" }, link[0])));
  if (story.offers.length) {
    const rows = story.offers.map((offer) => element("li", {}, asOf(offer, now)));
    made.push(element("h2", {}, "Instead this would do"), element("ol", {}, ...rows));
  }
  if (story.epochs.actual_s.length) made.push(element("h2", {}, "Seconds an epoch"), epochPlot(story.epochs));
  made.push(element("h2", {}, "Commands"), ...story.commands.map(command));
  const chain = story.chain.map((row) => [
    instant(row.first_at, now), `${row.decision}: ${asOf(row.reason, now)}${row.times > 1 ? ` (${row.times} times)` : ""}`,
  ]);
  if (chain.length) made.push(element("h2", {}, "Why"), table(chain.reverse()));
  return made;
}

function table(rows) {
  const lines = rows.map(([name, text]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, text)));
  return element("table", {}, element("tbody", {}, ...lines));
}

function command(text) {
  const onclick = ({ target }) => {
    getSelection()?.selectAllChildren(target.previousSibling); // browsers give the clipboard to https and to loopback only
    navigator.clipboard?.writeText(text).then(() => (target.textContent = "Copied"));
  };
  const copy = element("button", { type: "button", onclick }, "Copy");
  return element("div", { className: "command" }, element("code", {}, text), copy);
}

/** Epochs as dots, over the predicted P50 (line) and P90 (edge of the band). */
function epochPlot({ actual_s: actual, numbers, p50_s: p50, p90_s: p90 }) {
  const words = `The last epoch took ${duration(actual.at(-1))}; predicted: P50 ${duration(p50)}, P90 ${duration(p90)}`;
  const canvas = element("canvas", { role: "img", ariaLabel: words });
  const box = element("div", {}, canvas);
  requestAnimationFrame(() => {
    const [width, height, pen] = [canvas.clientWidth, canvas.clientHeight, penIn(box)];
    const most = Math.max(p90, ...actual) * 1.15;
    const y = (value) => height - 18 - (value / most) * (height - 24);
    clear(pen, width, height);
    pen.fillStyle = colours().soft;
    pen.fillRect(62, y(p90), width, y(0) - y(p90));
    line(pen, 62, y(p50), width, y(p50), colours().w4);
    pen.fillStyle = colours().ink;
    const step = (width - 78) / Math.max(1, actual.length - 1);
    actual.forEach((value, i) => pen.fillRect(66 + i * step, y(value) - 2, 4, 4));
    pen.fillStyle = colours().dim;
    pen.fillText(`P90 ${duration(p90)}`, 0, y(p90));
    if (y(p50) - y(p90) > 11) pen.fillText(`P50 ${duration(p50)}`, 0, y(p50));
    pen.fillText(`epochs ${numbers[0]} to ${numbers.at(-1)}`, 62, height - 7);
  });
  return box;
}
