// The page: signs in, follows the service, and ties filters, lanes, lists, table and panel together.

import { decode, FILTERS, lists, matching, nested, sentence, spanOf } from "./jobs.js";
import { Axis, Lanes } from "./lanes.js";
import { openPanel } from "./panel.js";
import { call, signIn, signOut } from "./service.js";
import { Strip } from "./strip.js";
import { element, instant, short } from "./words.js";

/** @typedef {import("./jobs.js").Job} Job */

const [TABLE_ROWS, WAIT_S, LEAST_PAUSE_MS, HOUR_S] = [200, 25, 500, 3600];
const byId = (id) => /** @type {any} */ (document.getElementById(id));
const [filters, box, panel, dialog] = ["filters", "lanes", "panel", "sign-in"].map(byId);
const wanted = new URLSearchParams(location.search);

let [jobs, groups, shown] = /** @type {Job[][]} */ ([[], [], []]);
const turned = new Set(); // groups that somebody folded or unfolded
let skew = 0; // of the service's clock to this one
let [last, opener] = /** @type {any[]} */ ([null, null]); // answer; element that opened the panel
let asking = new AbortController();
let isDrawn = true;

const pause = (milliseconds) => new Promise((resume) => setTimeout(resume, milliseconds));
const now = () => Date.now() / 1000 + skew;
const back = () => Number(wanted.get("back") ?? 24) * HOUR_S;
const axis = new Axis();
const lanes = new Lanes(box, axis);
const strip = new Strip(byId("strip"), axis);

async function follow() {
  let [failures, seen] = [0, ""];
  for (;;) {
    const { signal } = asking;
    try {
      const from = Math.floor(Math.min(last ? axis.from : Infinity, now() - back()) / HOUR_S) * HOUR_S;
      const answer = await call(`v1/timeline?from=${from}&seen=${seen}&wait_s=${seen ? WAIT_S : 0}`, { signal });
      [failures, seen, skew] = [0, answer.revision, answer.now - Date.now() / 1000];
      if (answer.jobs) update(answer);
      byId("status").textContent = "";
      await pause(LEAST_PAUSE_MS);
    } catch (/** @type {any} */ error) {
      if (signal.aborted) {
        asking = new AbortController();
      } else if (error.status === 401) {
        await askForToken();
        seen = "";
      } else {
        failures += 1;
        byId("status").textContent = `${error.message}; the page tries again`;
        await pause(Math.min(10_000, 250 * 2 ** failures));
      }
    }
    if (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
  }
}

/** Resolves once the browser has a cookie. @returns {Promise<void>} */
function askForToken() {
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => {
    dialog.querySelector("form").onsubmit = async (event) => {
      event.preventDefault();
      try {
        await signIn("Bearer", byId("token").value.trim());
        byId("token").value = byId("sign-in-error").textContent = "";
        dialog.close();
        resolve();
      } catch (/** @type {any} */ error) {
        byId("sign-in-error").textContent = error.status === 401 ? "This service does not know that token." : error.message;
      }
    };
  });
}

function update(answer) {
  const isFirst = !last;
  [jobs, groups] = [decode(answer.jobs, answer), decode(answer.groups, answer)];
  jobs.push(...groups.filter((group) => group.state === "refused" && !answer.jobs.group.includes(group.id)));
  last = answer;
  filters.hidden = byId("main").hidden = false;
  strip.show(jobs, answer);
  FILTERS.forEach(fillChoices);
  render();
  if (isFirst) showNow(), wanted.get("job") && open(wanted.get("job"));
  if (!panel.hidden) openPanel(panel, panel.dataset.job);
}

function render() {
  if (!last) return;
  shown = matching(jobs, wanted);
  showSentence();
  showEmpty();
  lanes.show(nested(shown, groups, turned));
  byId("lists").replaceChildren(...lists(shown, now()).map(listOf));
  byId("table").replaceChildren(...tableOf(shown));
  byId("cluster").replaceChildren(nodesOf(last.cluster));
  draw();
}

function showSentence() {
  const parts = sentence(jobs, now()).flatMap(([number, word]) => {
    const isOn = wanted.get("standing") === word;
    const filter = () => want("standing", isOn ? "" : String(word));
    const part = element("button", { type: "button", className: "part", ariaPressed: String(isOn), onclick: filter }, `${number} ${word}`);
    return [part, word === "refused" ? " in the last day; " : ", "];
  });
  const { total_gpus: total, free_gpus: free, noun } = last.cluster;
  byId("sentence").replaceChildren(...parts, `${total - free} of ${total} ${noun} used.`);
}

function showEmpty() {
  byId("empty").hidden = shown.length > 0;
  box.hidden = byId("strip").hidden = byId("keys").hidden = !jobs.length;
  const example = element("code", {}, "laxity submit train.py:main --deadline 20m");
  byId("empty").replaceChildren(...(jobs.length ? ["No job matches the filters."] : ["No jobs in this time. Submit one from a shell: ", example]));
}

function listOf([title, listed, name, when]) {
  const rows = listed.map((job) => {
    const at = when(job);
    const words = at === null ? job.words : `${job.words}; ${name} ${instant(at, now())}`;
    return element("li", {}, opening(job), " ", element("span", { className: "dim" }, words));
  });
  return element("div", {}, element("h2", {}, title), rows.length ? element("ul", {}, ...rows) : element("p", { className: "dim" }, "none"));
}

/** A button that opens the job. */
const opening = (job) => element("button", { type: "button", className: "part name", onclick: () => open(job.id) }, short(job.id));

function tableWith(names, rows) {
  const line = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element("table", {}, element("thead", {}, line("th", names)), element("tbody", {}, ...rows.map((cells) => line("td", cells))));
}

function tableOf(all) {
  const when = (at) => (at === null ? "-" : instant(at, now()));
  const rows = all.slice(0, TABLE_ROWS).map((job) => [
    opening(job), job.words, when(job.deadline_at), when(job.finished_at ?? job.p90_at), String(job.workers || "-"), job.epochs ? `${job.epochs_done}/${job.epochs}` : "-", job.class,
  ]);
  const rest = all.length > TABLE_ROWS ? `: the first ${TABLE_ROWS} of ${all.length}; filter to see others` : "";
  return [element("h2", {}, `Jobs${rest}`), tableWith(["Job", "State", "Deadline", "End or P90 finish", "Workers", "Epochs", "Class"], rows)];
}

function nodesOf({ node, pool, gpu_type, gpus, free, held, noun }) {
  const rows = node.map((name, i) => [name, pool[i], gpu_type[i], String(gpus[i]), String(free[i]), held[i].map(short).join(", ")]);
  return element("details", { open: byId("cluster").firstChild?.open }, element("summary", {}, `Nodes: ${rows.length}`),
    tableWith(["Node", "Pool", "Type", noun, "Free", "Held by"], rows));
}

function draw() {
  if (!isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    for (const part of [lanes, strip]) part.draw(now());
  });
}

/** Open the panel of a job, or of a group, which folds or unfolds. */
function press(id) {
  if (id.endsWith("/") && !turned.delete(id)) turned.add(id);
  open(id);
}

function open(id) {
  opener = document.activeElement;
  want("job", id);
  lanes.chosen = id;
  lanes.reveal();
  draw();
  openPanel(panel, id);
}

function closePanel() {
  panel.hidden = true;
  want("job", "");
  (opener?.isConnected ? opener : box).focus();
}

/** Filter, and keep the filter in the address. */
function want(name, value) {
  if (value) wanted.set(name, value);
  else wanted.delete(name);
  history.replaceState(null, "", wanted.size ? `?${wanted}` : location.pathname);
  for (const field of filters.querySelectorAll("[name]")) {
    if (field !== document.activeElement) field.value = wanted.get(field.name) ?? (field.name === "back" ? "24" : "");
  }
  render();
}

function fillChoices(name) {
  const select = filters.elements.namedItem(name);
  const values = new Set([wanted.get(name), ...jobs.map((job) => /** @type {any} */ (job)[name])].filter(Boolean));
  const choices = [...values].sort().map((value) => element("option", { value }, value));
  select.replaceChildren(element("option", { value: "" }, `${select.ariaLabel}: all`), ...choices);
  select.value = wanted.get(name) ?? "";
}

/** Show what these jobs did, and what is reserved for them. */
const showNow = () => look(...spanOf(shown, now(), back()));

function look(from, to) {
  axis.show(from, to);
  if (last && from < last.base_at - HOUR_S) asking.abort(); // what is older is fetched
  draw();
}

function zoom(factor, at = now()) {
  axis.zoom(factor, at);
  look(axis.from, axis.to);
}

function move(share) {
  const seconds = share * (axis.to - axis.from);
  look(axis.from + seconds, axis.to + seconds);
}

function choose(by) {
  const place = lanes.jobs.findIndex((job) => job.id === lanes.chosen) + by;
  const job = lanes.jobs[Math.max(0, Math.min(lanes.jobs.length - 1, place))];
  if (!job) return;
  lanes.chosen = job.id;
  lanes.reveal();
  box.ariaLabel = `${short(job.id)}: ${job.words}`;
  draw();
}

box.addEventListener("scroll", draw);
box.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.shiftKey && !event.deltaX) return; // scrolls
  event.preventDefault();
  if (event.ctrlKey) zoom(2 ** (event.deltaY / 300), axis.at(event.offsetX));
  else move((event.deltaX || event.deltaY) / axis.width);
}, { passive: false });
box.addEventListener("pointerdown", (down) => {
  let moved = 0;
  const drag = (event) => {
    moved += Math.abs(event.movementX);
    if (moved > 4) move(-event.movementX / axis.width);
  };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", (event) => {
    removeEventListener("pointermove", drag);
    const job = moved <= 4 && event.target === lanes.pen.canvas ? lanes.jobAt(down.offsetY) : undefined;
    if (job) press(job.id);
  }, { once: true });
});
const KEYS = /** @type {Record<string, () => void>} */ ({
  ArrowDown: () => choose(1), ArrowUp: () => choose(-1), ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15),
  Enter: () => lanes.chosen && press(lanes.chosen), "+": () => zoom(0.7), "-": () => zoom(1.4),
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  if (event.key === "Escape" && !panel.hidden) closePanel();
  if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
  const act = { ...(event.target === box && KEYS), t: showNow, "/": () => byId("text").focus() }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("input", ({ target }) => {
  want(target.name, target.value);
  if (target.name === "back") showNow();
});
const BUTTONS = {
  close: closePanel, now: showNow, "zoom-in": () => zoom(0.6), "zoom-out": () => zoom(1.6),
  clear: () => ["text", ...FILTERS].forEach((name) => want(name, "")), "sign-out": () => signOut().then(() => location.reload()),
};
for (const [id, onclick] of Object.entries(BUTTONS)) byId(id).onclick = onclick;
addEventListener("resize", render);
setInterval(() => !document.hidden && draw(), 1000);

const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  await signIn("Code", code).catch(() => {}); // used or too old: the page asks for a token
}
document.body.classList.toggle("embed", wanted.has("embed"));
want("", "");
follow();
