// Jobs as the page draws them, made of the timeline's columns; filters, lists and the sentence.

/** @typedef {{from: number, to: number, width: number, kind: "run" | "wait" | "stop" | "will" | "guess"}} Segment
 *  Instants are POSIX seconds; a `to` of Infinity moves with the clock. */
/** @typedef {{id: string, namespace: string, class: string, model: string, state: string, standing: string,
 *  words: string, verdict: string, workers: number, gpus: number, lent: number, offers: number, epochs: number,
 *  done: number, submitted: number, deadline: number | null, p50: number | null, p90: number | null,
 *  given: number | null, start: number | null, end: number | null, segments: Segment[]}} Job */

const RANK = { running: 0, stopping: 0, queued: 1, suspended: 1, refused: 2 };
const DAY_S = 86_400;
const LISTED = 8;
export const FILTERS = ["namespace", "class", "model", "standing"];

/** Jobs in the order of `laxity top`. @param {any} answer @returns {Job[]} */
export function decode(answer) {
  const { jobs: column, base_at: base, now } = answer;
  const at = (/** @type {number | null} */ value) => (value === null ? null : value + base);
  const jobs = column.id.map((/** @type {string} */ id, /** @type {number} */ i) => {
    const job = {
      id, namespace: id.split("/")[0], class: column.class[i], model: column.model[i], state: column.state[i],
      standing: column.standing[i], words: column.words[i], verdict: column.verdict[i],
      workers: column.workers[i], gpus: column.gpus[i], lent: column.lent[i], offers: column.offers[i],
      epochs: column.epochs[i], done: column.epochs_done[i], submitted: at(column.submitted_at[i]) ?? base,
      deadline: at(column.deadline_at[i]), p50: at(column.p50_at[i]), p90: at(column.p90_at[i]),
      given: at(column.given_p90_at[i]), start: at(column.expected_start_at[i]), end: at(column.finished_at[i]),
      segments: /** @type {Segment[]} */ ([]),
    };
    past(job, column.ran[i], base);
    if (job.end === null && job.state !== "refused") future(job, column.will[i], base, now);
    return job;
  });
  return jobs.sort((/** @type {Job} */ a, /** @type {Job} */ b) => compare(rank(a), rank(b)));
}

/** @param {Job} job @param {number[]} ran @param {number} base */
function past(job, ran, base) {
  const until = job.end ?? Infinity;
  const first = ran.length ? ran[0] + base : until;
  if (first > job.submitted && job.state !== "refused") add(job, job.submitted, first, 0, "wait");
  for (let k = 0; k < ran.length; k += 2) {
    const to = k + 2 < ran.length ? ran[k + 2] + base : until;
    add(job, ran[k] + base, to, ran[k + 1], ran[k + 1] ? "run" : "stop");
  }
}

/** @param {Job} job @param {number[]} will @param {number} base @param {number} now */
function future(job, will, base, now) {
  let from = now;
  for (let k = 0; k < will.length; k += 2) {
    add(job, from, will[k] + base, will[k + 1], will[k + 1] ? "will" : "wait");
    from = will[k] + base;
  }
  if (will.length) return;
  const start = job.workers ? now : Math.max(now, job.start ?? now);
  add(job, now, start, 0, "wait");
  if (job.p50 !== null) add(job, start, job.p50, Math.max(1, job.workers), "guess");
}

/** @param {Job} job @param {number} from @param {number} to @param {number} width @param {Segment["kind"]} kind */
function add(job, from, to, width, kind) {
  if (to > from) job.segments.push({ from, to, width, kind });
}

/** @param {Job} job */
function rank(job) {
  if (job.end !== null) return [3, -job.end, 0];
  return [RANK[/** @type {keyof RANK} */ (job.state)] ?? 3, job.deadline ?? Infinity, job.submitted];
}

/** @param {number[]} a @param {number[]} b */
function compare(a, b) {
  const k = a.findIndex((value, i) => value !== b[i]);
  return k < 0 ? 0 : a[k] < b[k] ? -1 : 1;
}

/** @param {Job[]} jobs @param {URLSearchParams} wanted */
export function matching(jobs, wanted) {
  const fixed = FILTERS.filter((name) => wanted.get(name));
  const text = (wanted.get("text") ?? "").toLowerCase();
  return jobs.filter((/** @type {any} */ job) =>
    fixed.every((name) => job[name] === wanted.get(name)) &&
    (!text || `${job.id} ${job.model} ${job.words}`.toLowerCase().includes(text)));
}

/** Each part is a number, its word, and the filter that it sets. @param {Job[]} jobs @param {number} now */
export function sentence(jobs, now) {
  const count = (/** @type {(job: Job) => boolean} */ so) => jobs.filter(so).length;
  return [
    [count((job) => job.standing === "promised"), "promised"],
    [count((job) => job.standing === "endangered"), "endangered"],
    [count((job) => job.standing === "refused" && (job.end ?? job.submitted) > now - DAY_S), "refused"],
  ];
}

/** Titles and jobs of the lists. @param {Job[]} jobs @param {number} now @returns {[string, Job[], (job: Job) => number | null][]} */
export function lists(jobs, now) {
  const open = jobs.filter((job) => job.end === null && job.state !== "refused");
  const due = (/** @type {Job} */ job) => job.deadline ?? Infinity;
  const soon = open.filter((job) => due(job) > now && due(job) < now + DAY_S);
  const missed = jobs.filter((job) => ["broken", "late"].includes(job.standing) && due(job) < now);
  const refused = jobs.filter((job) => job.offers && (job.end === null));
  return [
    ["Due soon", soon.sort((a, b) => due(a) - due(b)).slice(0, LISTED), (job) => job.deadline],
    ["Endangered", open.filter((job) => job.standing === "endangered").slice(0, LISTED), (job) => job.p90],
    ["Recently missed", missed.sort((a, b) => due(b) - due(a)).slice(0, LISTED), (job) => job.deadline],
    ["Refused, with offers", refused.sort((a, b) => b.submitted - a.submitted).slice(0, LISTED), (job) => job.deadline],
  ];
}
