// One job or group in words: why it stands where it stands, what it may take, and the commands to copy.

import { act, call, pathOf } from "./service.js";
import { asOf, element, instant } from "./words.js";

/** Show a job in the panel; what somebody marks there is left as it is. */
export async function openPanel(panel, id) {
  const [close, body] = panel.children;
  const isNew = panel.hidden || panel.dataset.job !== id;
  if (!isNew && !getSelection()?.isCollapsed) return;
  panel.dataset.job = id;
  panel.hidden = false;
  if (isNew) close.focus();
  try {
    const [story, log] = await Promise.all([call(pathOf(id, "/story")), id.endsWith("/") ? { text: "" } : call(pathOf(id, "/logs?tail=15")).catch(() => ({ text: "" }))]);
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
  if (story.picture) made.push(element("img", { src: `data:image/svg+xml,${encodeURIComponent(story.picture)}`, alt: "Epochs: predicted and measured" }));
  if (window === top) made.push(element("div", { className: "command" }, ...story.actions.map((action) => button(story.id, action, now))));
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

/** A button that asks first; the panel then shows what came of it. A page in a frame has none. */
function button(id, action, now) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("ask"));
  const [question, field] = [/** @type {Element} */ (dialog.querySelector("p")), /** @type {any} */ (dialog.querySelector("input"))];
  const onclick = () => {
    [question.textContent, field.value, dialog.returnValue] = [asOf(action.question, now), "", ""];
    field.hidden = field.disabled = !("deadline" in action.body);
    dialog.onclose = async () => {
      if (dialog.returnValue !== "yes") return;
      if (!field.disabled) action.body.deadline = field.value.trim();
      await act(id, action).catch((error) => alert(error.message));
      openPanel(/** @type {any} */ (document.getElementById("panel")), id);
    };
    dialog.showModal();
  };
  return element("button", { type: "button", onclick }, action.label);
}
