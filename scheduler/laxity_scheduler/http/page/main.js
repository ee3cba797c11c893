// The page: signs in, follows the service, and ties filters, lanes, lists, table and panel together.

import { decode, FILTERS, lists, matching, sentence } from "./jobs.js";
import { Axis, Lanes } from "./lanes.js";
import { openPanel } from "./panel.js";
import { call, signIn, signOut } from "./service.js";
import { Strip } from "./strip.js";
import { element, instant, short } from "./words.js";

const TABLE_ROWS = 200;
const WAIT_S = 25;
const LEAST_PAUSE_MS = 500;
const HOUR_S = 3600;
const byId = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));
const filters = /** @type {HTMLFormElement} */ (byId("filters"));
const wanted = new URLSearchParams(location.search);
const now = () => Date.now() / 1000 + skew;

let skew = 0; // of the service's clock to this one
/** @type {import("./jobs.js").Job[]} */
let jobs = [];
/** @type {import("./jobs.js").Job[]} */
let shown = [];
/** @type {any} */
let last = null;
let asking = new AbortController();
let isDrawn = true;
/** @type {HTMLElement | null} */
let opener = null;

const back = () => Number(wanted.get("back") ?? 24) * HOUR_S;
const axis = new Axis(0, 1);
const lanes = new Lanes(byId("lanes"), axis);
const strip = new Strip(byId("strip"), axis);

// --- the service ---------------------------------------------------------------------------------

async function follow() {
  let failures = 0;
  let seen = "";
  for (;;) {
    const asked = asking;
    try {
      const from = Math.floor(Math.min(axis.from, now() - back()) / HOUR_S) * HOUR_S;
      const answer = await call(`v1/timeline?from=${from}&seen=${seen}&wait_s=${seen ? WAIT_S : 0}`, { signal: asked.signal });
      failures = 0;
      seen = answer.revision;
      skew = answer.now - Date.now() / 1000;
      if (answer.jobs) update(answer);
      setStatus("");
      await pause(LEAST_PAUSE_MS);
    } catch (/** @type {any} */ error) {
      if (asked.signal.aborted) {
        asking = new AbortController();
        continue;
      }
      if (error.status === 401) {
        await askForToken();
        seen = "";
        continue;
      }
      failures += 1;
      setStatus(`${error.message}; the page tries again`);
      await pause(Math.min(10_000, 500 * 2 ** failures));
    }
    if (document.hidden) await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
  }
}

/** @param {number} milliseconds */
function pause(milliseconds) {
  return new Promise((resume) => setTimeout(resume, milliseconds));
}

/** @param {string} problem */
function setStatus(problem) {
  byId("status").textContent = problem;
  byId("status").className = problem ? "away" : "";
}

/** Resolves once the browser has a cookie. */
function askForToken() {
  const dialog = /** @type {HTMLDialogElement} */ (byId("sign-in"));
  if (!dialog.open) dialog.showModal();
  return new Promise((/** @type {(value?: unknown) => void} */ resolve) => {
    /** @type {HTMLFormElement} */ (dialog.querySelector("form")).onsubmit = async (event) => {
      event.preventDefault();
      try {
        await signIn("Bearer", byId("token").value.trim());
        byId("token").value = byId("sign-in-error").textContent = "";
        dialog.close();
        resolve();
      } catch (/** @type {any} */ error) {
        byId("sign-in-error").textContent = error.message;
      }
    };
  });
}

/** @param {any} answer */
function update(answer) {
  jobs = decode(answer);
  if (!last) showNow();
  last = answer;
  strip.show(jobs, answer.cluster, answer.now);
  for (const name of FILTERS) fillChoices(name);
  render();
  if (!byId("panel").hidden) openPanel(byId("panel"), byId("panel").dataset.job, closePanel);
}

// --- what is shown -------------------------------------------------------------------------------

function render() {
  if (!last) return;
  shown = matching(jobs, wanted);
  lanes.show(shown);
  showSentence();
  showEmpty();
  byId("lists").replaceChildren(...lists(shown, now()).map(listOf));
  byId("table").replaceChildren(...tableOf(shown));
  byId("cluster").replaceChildren(...nodesOf(last.cluster));
  draw();
}

function showSentence() {
  const parts = sentence(jobs, now()).flatMap(([count, word]) => {
    const isOn = wanted.get("standing") === word;
    const part = element("button", { type: "button", className: "part", onclick: () => want("standing", isOn ? "" : String(word)) }, `${count} ${word}`);
    part.setAttribute("aria-pressed", String(isOn));
    return [part, word === "refused" ? " in the last day; " : ", "];
  });
  const { total, free, noun } = last.cluster;
  byId("sentence").replaceChildren(...parts, `${total - free} of ${total} ${noun} used.`);
}

function showEmpty() {
  const empty = byId("empty");
  empty.hidden = shown.length > 0;
  byId("lanes").hidden = byId("strip").hidden = byId("keys").hidden = !jobs.length;
  if (shown.length) return;
  const example = element("code", {}, "laxity submit train.py:main --deadline 20m");
  const none = ["No jobs yet. Submit the first one from a shell: ", example];
  empty.replaceChildren(...(jobs.length ? ["No job matches the filters. Clear them to see all jobs."] : none));
}

/** @param {[string, import("./jobs.js").Job[], (job: import("./jobs.js").Job) => number | null]} list */
function listOf([title, listed, when]) {
  const rows = listed.map((job) => {
    const at = when(job);
    return element("li", {}, opening(job, element("span", { className: "name" }, short(job.id)), " ",
      element("span", { className: "dim" }, [job.words, at === null ? "" : instant(at, now())].filter(Boolean).join(", "))));
  });
  const body = rows.length ? element("ul", {}, ...rows) : element("p", { className: "dim" }, "none");
  return element("div", {}, element("h2", {}, title), body);
}

/** @param {import("./jobs.js").Job} job @param {...(Node | string)} children */
function opening(job, ...children) {
  return element("button", { type: "button", className: "part", onclick: () => open(job.id) }, ...children);
}

/** @param {import("./jobs.js").Job[]} rows */
function tableOf(rows) {
  const columns = ["Job", "Class", "State", "Deadline", "P50 finish", "P90 finish", "Workers", "Epochs"];
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.slice(0, TABLE_ROWS).map((job) => {
    const texts = [job.class, job.words, ...[job.deadline, job.p50, job.p90].map((at) => (at === null ? "-" : instant(at, now()))), String(job.workers), `${job.done}/${job.epochs}`];
    return element("tr", {}, element("td", {}, opening(job, short(job.id))), ...texts.map((text) => element("td", {}, text)));
  });
  const rest = rows.length > TABLE_ROWS ? ` (the first ${TABLE_ROWS} of ${rows.length}; filter to see others)` : "";
  return [element("h2", {}, `Jobs${rest}`), element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))];
}

/** @param {any} cluster */
function nodesOf(cluster) {
  const rows = cluster.node.map((/** @type {string} */ name, /** @type {number} */ i) => element("tr", {},
    ...[name, cluster.pool[i], cluster.gpus[i], cluster.free[i], cluster.held[i].join(", ")].map((text) => element("td", {}, String(text)))));
  const head = ["Node", "Pool", cluster.noun, "Free", "Held by"].map((name) => element("th", { scope: "col" }, name));
  return [element("details", {}, element("summary", {}, `${rows.length} nodes`),
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)))];
}

function draw() {
  if (!isDrawn) return;
  isDrawn = false;
  requestAnimationFrame(() => {
    isDrawn = true;
    lanes.draw(now());
    strip.draw(now());
  });
}

// --- what people do ------------------------------------------------------------------------------

/** @param {string} id */
function open(id) {
  opener = /** @type {HTMLElement} */ (document.activeElement);
  lanes.chosen = id;
  lanes.reveal();
  draw();
  openPanel(byId("panel"), id, closePanel);
}

function closePanel() {
  byId("panel").hidden = true;
  byId("panel").replaceChildren();
  opener?.focus();
}

/** @param {string} name @param {string} value */
function want(name, value) {
  if (value) wanted.set(name, value);
  else wanted.delete(name);
  const query = wanted.toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  for (const field of filters.elements) {
    if (field instanceof HTMLInputElement || field instanceof HTMLSelectElement) field.value = wanted.get(field.name) ?? (field.name === "back" ? "24" : "");
  }
  render();
}

/** @param {string} name */
function fillChoices(name) {
  const select = /** @type {HTMLSelectElement} */ (filters.elements.namedItem(name));
  const values = new Set(jobs.map((job) => /** @type {any} */ (job)[name]).filter(Boolean));
  if (wanted.get(name)) values.add(wanted.get(name));
  const label = select.getAttribute("aria-label") ?? name;
  const choices = [...values].sort().map((value) => element("option", { value }, value));
  select.replaceChildren(element("option", { value: "" }, `${label}: all`), ...choices);
  select.value = wanted.get(name) ?? "";
}

/** Now a third from the right, so that the reserved future is seen. */
function showNow() {
  axis.from = now() - back();
  axis.to = now() + back() / 2;
  draw();
}

/** @param {number} factor @param {number} at */
function zoom(factor, at = now()) {
  axis.zoom(factor, at);
  fetchOlder();
  draw();
}

/** @param {number} seconds */
function move(seconds) {
  axis.move(seconds);
  fetchOlder();
  draw();
}

function fetchOlder() {
  if (last && axis.from < last.base_at - HOUR_S) asking.abort();
}

/** @param {number} by */
function choose(by) {
  const place = shown.findIndex((job) => job.id === lanes.chosen);
  const job = shown[Math.max(0, Math.min(shown.length - 1, place + by))];
  if (!job) return;
  lanes.chosen = job.id;
  lanes.reveal();
  byId("lanes").setAttribute("aria-label", `${short(job.id)}: ${job.words}`);
  draw();
}

const box = byId("lanes");
box.addEventListener("scroll", draw);
box.addEventListener("wheel", (/** @type {WheelEvent} */ event) => {
  if (!event.ctrlKey && !event.shiftKey && !event.deltaX) return; // scrolls
  event.preventDefault();
  const span = axis.to - axis.from;
  if (event.ctrlKey) zoom(2 ** (event.deltaY / 300), axis.at(event.offsetX));
  else move(((event.deltaX || event.deltaY) / axis.width) * span);
}, { passive: false });
box.addEventListener("pointerdown", (/** @type {PointerEvent} */ down) => {
  let moved = 0;
  const drag = (/** @type {PointerEvent} */ event) => {
    moved += Math.abs(event.movementX);
    if (moved > 4) move((-event.movementX / (axis.width || 1)) * (axis.to - axis.from));
  };
  addEventListener("pointermove", drag);
  addEventListener("pointerup", (event) => {
    removeEventListener("pointermove", drag);
    const job = moved <= 4 && event.target === lanes.canvas ? lanes.jobAt(down.offsetY) : undefined;
    if (job) open(job.id);
  }, { once: true });
});
box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  const sixth = (axis.to - axis.from) / 6;
  const acts = /** @type {Record<string, () => void>} */ ({
    ArrowDown: () => choose(1), ArrowUp: () => choose(-1), ArrowLeft: () => move(-sixth), ArrowRight: () => move(sixth),
    PageDown: () => choose(15), PageUp: () => choose(-15), Enter: () => lanes.chosen && open(lanes.chosen),
    "+": () => zoom(0.7), "-": () => zoom(1.4),
  });
  if (!acts[event.key] || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  acts[event.key]();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !byId("panel").hidden) closePanel();
  if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement || byId("sign-in").open) return;
  if (event.key === "t") showNow();
  if (event.key !== "/") return;
  event.preventDefault();
  byId("text").focus();
});
filters.addEventListener("submit", (event) => event.preventDefault());
filters.addEventListener("input", (event) => {
  const field = /** @type {HTMLInputElement} */ (event.target);
  want(field.name, field.value);
  if (field.name !== "back") return;
  asking.abort();
  showNow();
});
byId("now").onclick = showNow;
byId("zoom-in").onclick = () => zoom(0.6);
byId("zoom-out").onclick = () => zoom(1.6);
byId("clear").onclick = () => ["text", ...FILTERS].forEach((name) => want(name, ""));
byId("sign-out").onclick = async () => {
  await signOut();
  location.reload();
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(render).observe(document.body);
setInterval(() => !document.hidden && draw(), 1000);

const code = new URLSearchParams(location.hash.slice(1)).get("code");
if (code) {
  history.replaceState(null, "", location.pathname + location.search);
  await signIn("Code", code).catch((error) => setStatus(error.message));
}
want("", "");
follow();
