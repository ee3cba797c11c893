// Jobs as the page draws them, made of the timeline's columns; filters, lists and the sentence.

/** @typedef {{from: number, to: number, width: number, kind: "run" | "wait" | "stop" | "will" | "guess"}} Segment
 *  Instants are POSIX seconds; a `to` of Infinity moves with the clock. */
/** @typedef {Record<string, any> & {segments: Segment[]}} Job with the fields of the timeline's columns */

const RANK = { running: 0, stopping: 0, queued: 1, suspended: 1, refused: 2 };
const [DAY_S, LISTED] = [86_400, 8];
export const FILTERS = ["namespace", "class", "model", "group", "standing"];

/** Jobs, or groups, in the order of `laxity top`. @returns {Job[]} */
export function decode(columns, { base_at: base, now }) {
  const jobs = columns.id.map((id, i) => {
    const job = /** @type {Job} */ ({ namespace: id.split("/")[0], group: "", segments: [] });
    for (const [name, values] of Object.entries(columns)) {
      job[name] = name.endsWith("_at") && values[i] !== null ? values[i] + base : values[i];
    }
    past(job, job.ran, base);
    if (job.finished_at === null && job.state !== "refused") future(job, job.will, base, now);
    return job;
  });
  return jobs.sort(compare);
}

function past(job, ran, base) {
  const until = job.finished_at ?? Infinity;
  const first = ran.length ? ran[0] + base : until;
  if (first > job.submitted_at && job.state !== "refused") add(job, job.submitted_at, first, 0, "wait");
  for (let k = 0; k < ran.length; k += 2) {
    const to = k + 2 < ran.length ? ran[k + 2] + base : until;
    add(job, ran[k] + base, to, ran[k + 1], ran[k + 1] ? "run" : "stop");
  }
}

function future(job, will, base, now) {
  let from = now;
  for (let k = 0; k < will.length; k += 2) {
    add(job, from, will[k] + base, will[k + 1], will[k + 1] ? "will" : "wait");
    from = will[k] + base;
  }
  if (will.length) return;
  const start = job.workers ? now : Math.max(now, job.expected_start_at ?? now);
  add(job, now, start, 0, "wait");
  if (job.p50_at !== null) add(job, start, job.p50_at, Math.max(1, job.workers), "guess");
}

function add(job, from, to, width, kind) {
  if (to > from) job.segments.push({ from, to, width, kind });
}

/** Running before waiting before refused before ended; then by deadline, or the latest end. */
function compare(a, b) {
  const rank = (job) => (job.finished_at === null ? RANK[job.state] ?? 3 : 3);
  const time = (job) => (job.finished_at === null ? job.deadline_at ?? Infinity : -job.finished_at);
  return rank(a) - rank(b) || time(a) - time(b) || a.submitted_at - b.submitted_at;
}

/** Jobs and groups as lanes, below each group its jobs. Groups that ended are folded, `turned` ones the other way. */
export function nested(jobs, groups, turned) {
  const isFolded = (row) => (row.finished_at !== null) !== turned.has(row.id);
  const parts = Map.groupBy(jobs, (job) => job.group);
  const rows = [...(parts.get("") ?? []), ...groups.filter((group) => parts.has(group.id))].sort(compare);
  return rows.flatMap((row) => [row, ...(isFolded(row) ? [] : parts.get(row.id) ?? [])]);
}

export function matching(jobs, wanted) {
  const fixed = FILTERS.filter((name) => wanted.get(name));
  const text = (wanted.get("text") ?? "").toLowerCase();
  return jobs.filter((job) =>
    fixed.every((name) => job[name] === wanted.get(name)) &&
    (!text || `${job.id} ${job.model} ${job.words}`.toLowerCase().includes(text)));
}

/** Each part is a number, its word, and the filter that it sets. */
export function sentence(jobs, now) {
  const count = (so) => jobs.filter(so).length;
  return [
    [count((job) => job.standing === "promised"), "promised"],
    [count((job) => job.standing === "endangered"), "endangered"],
    [count((job) => job.standing === "refused" && (job.finished_at ?? job.submitted_at) > now - DAY_S), "refused"],
  ];
}

/** Titles, jobs, and the instant that counts with its name. @param {Job[]} jobs @param {number} now
 * @returns {[string, Job[], string, (job: Job) => number | null][]} */
export function lists(jobs, now) {
  const open = jobs.filter((job) => job.finished_at === null && job.state !== "refused");
  const due = (job) => job.deadline_at ?? Infinity;
  const soon = open.filter((job) => due(job) > now && due(job) < now + DAY_S);
  const missed = jobs.filter((job) => ["broken", "late"].includes(job.standing) && due(job) < now);
  const refused = jobs.filter((job) => job.offers && (job.finished_at === null));
  const first = (some, order) => some.sort(order).slice(0, LISTED);
  return [
    ["Due soon", first(soon, (a, b) => due(a) - due(b)), "due", (job) => job.deadline_at],
    ["Endangered", first(open.filter((job) => job.standing === "endangered"), (a, b) => due(a) - due(b)), "P90 finish", (job) => job.p90_at],
    ["Recently missed", first(missed, (a, b) => due(b) - due(a)), "was due", (job) => job.deadline_at],
    ["Refused, with offers", first(refused, (a, b) => b.submitted_at - a.submitted_at), "asked for", (job) => job.deadline_at],
  ];
}

/** From the first to the last instant of these jobs, at most `back` seconds ago and half of that ahead.
 * @param {Job[]} jobs @param {number} now @param {number} back @returns {[number, number]} */
export function spanOf(jobs, now, back) {
  let [from, to] = [now - 60, now + 60];
  for (const job of jobs) {
    if ((job.finished_at ?? now) < now - back) continue;
    from = Math.min(from, job.submitted_at);
    if (job.finished_at === null) to = Math.max(to, job.deadline_at ?? 0, job.p90_at ?? 0);
  }
  [from, to] = [Math.max(from, now - back), Math.min(to, now + back / 2)];
  const edge = (to - from) * 0.04;
  return [from - edge, to + edge];
}
