// One lane a job on a time axis: past, now, future. Draws the lanes that can be seen, on a canvas.

import { clock, short } from "./words.js";

/** @typedef {import("./jobs.js").Job} Job @typedef {import("./jobs.js").Segment} Segment */

export const GUTTER = 290; // pixels for names and words
const [ROW, AXIS] = [22, 24];
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];
const [LEAST_SPAN_S, MOST_SPAN_S] = [10, 90 * 86_400];
const BAD = ["endangered", "broken", "late", "refused", "failed"];
const ENDS = /** @type {Record<string, string>} */ ({ kept: "✓", broken: "✗", late: "✗", failed: "!", cancelled: "∅" });

/** Which span is seen, and where an instant stands. Lanes and strip share one. */
export class Axis {
  from = 0;
  to = 1;
  width = GUTTER + 1;

  x(at) {
    return GUTTER + ((at - this.from) / (this.to - this.from)) * (this.width - GUTTER);
  }

  at(x) {
    return this.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.to - this.from);
  }

  show(from, to) {
    this.from = from;
    this.to = from + Math.min(MOST_SPAN_S, Math.max(LEAST_SPAN_S, to - from));
  }

  zoom(factor, at) {
    const span = (this.to - this.from) * factor;
    if (span >= LEAST_SPAN_S && span <= MOST_SPAN_S) this.show(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  /** Instants of the axis's lines, at round local times. */
  ticks() {
    const least = ((this.to - this.from) / (this.width - GUTTER)) * 90;
    const step = STEPS.find((seconds) => seconds >= least) ?? 604_800;
    const zone = new Date(this.from * 1000).getTimezoneOffset() * 60;
    const made = [];
    for (let at = Math.ceil((this.from - zone) / step) * step + zone; at <= this.to; at += step) made.push(at);
    return made;
  }
}

/** The pen of the canvas in a box. @returns {CanvasRenderingContext2D} */
export const penIn = (box) => box.querySelector("canvas").getContext("2d", { alpha: false });

const NAMES = ["paper", "ink", "dim", "line", "soft", "w1", "w2", "w4", "w8", "w16", "good", "bad", "lent", "now"];
/** The colours of the style sheet, light or dark. @type {Record<string, string>} */
export let colour = {};

/** Clear a canvas, in the pixels of the screen and the colours of now. */
export function clear(pen, width, height) {
  const style = getComputedStyle(document.documentElement);
  colour = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (pen.canvas.width !== wide || pen.canvas.height !== high) [pen.canvas.width, pen.canvas.height] = [wide, high];
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.fillStyle = colour.paper;
  pen.fillRect(0, 0, width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
}

export function line(pen, x1, y1, x2, y2, shade, width = 1.5) {
  [pen.strokeStyle, pen.lineWidth] = [shade, width];
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/** A text, or its beginning that fits into the room. @param {CanvasRenderingContext2D} pen */
function write(pen, text, x, y, shade, room = Infinity) {
  let fits = text.slice(0, room / 3);
  while (fits && room < Infinity && pen.measureText(fits).width > room) fits = fits.slice(0, -1);
  pen.fillStyle = shade;
  pen.fillText(fits === text ? text : `${fits.slice(0, -1)}…`, x, y);
}

/** Draw in a part of the canvas. */
export function within(pen, [x, y, width, height], paint) {
  const part = new Path2D();
  part.rect(x, y, width, height);
  pen.save();
  pen.clip(part);
  paint();
  pen.restore();
}

export class Lanes {
  /** @type {Job[]} */
  jobs = [];
  chosen = "";

  constructor(box, axis) {
    this.box = box;
    this.axis = axis;
    this.pen = penIn(box);
  }

  show(jobs) {
    this.jobs = jobs;
    this.box.querySelector(".spacer").style.height = `${Math.max(0, AXIS + jobs.length * ROW - this.box.clientHeight)}px`;
  }

  /** The job at a height of the canvas. @returns {Job | undefined} */
  jobAt(y) {
    return y < AXIS ? undefined : this.jobs[Math.floor((y - AXIS + this.box.scrollTop) / ROW)];
  }

  /** Scroll until the chosen job can be seen. */
  reveal() {
    const top = this.jobs.findIndex((job) => job.id === this.chosen) * ROW;
    const room = this.box.clientHeight - AXIS - ROW;
    if (top >= 0) this.box.scrollTop = Math.max(top - room, Math.min(this.box.scrollTop, top));
  }

  draw(now) {
    const began = performance.now();
    const [width, height, { pen }] = [this.box.clientWidth, this.box.clientHeight, this];
    if (!width) return;
    this.axis.width = Math.max(GUTTER + 1, width);
    pen.canvas.style.height = `${height}px`;
    clear(pen, width, height);
    this.hatch = hatching(pen);
    this.drawGrid(height, now);
    const first = Math.floor(this.box.scrollTop / ROW);
    const seen = this.jobs.slice(first, first + Math.ceil(height / ROW) + 1);
    const top = AXIS + first * ROW - this.box.scrollTop;
    within(pen, [GUTTER, AXIS, width, height], () => seen.forEach((job, i) => this.drawJob(job, top + i * ROW, now)));
    within(pen, [0, AXIS, GUTTER, height], () => seen.forEach((job, i) => this.drawName(job, top + i * ROW)));
    pen.canvas.dataset.frameMs = (performance.now() - began).toFixed(2);
  }

  drawGrid(height, now) {
    const { pen, axis } = this;
    pen.textAlign = "center";
    for (const at of axis.ticks()) {
      line(pen, axis.x(at), AXIS - 4, axis.x(at), height, colour.line, 1);
      const label = clock(at, now).replace(/(\d\d:\d\d):00$/, "$1");
      if (Math.abs(axis.x(at) - axis.x(now)) > 55) write(pen, label, axis.x(at), AXIS / 2 - 2, colour.dim);
    }
    const x = axis.x(now);
    if (x >= GUTTER) {
      line(pen, x, AXIS - 8, x, height, colour.now);
      write(pen, "now", x, AXIS / 2 - 2, colour.now);
    }
    pen.textAlign = "left";
  }

  drawName(job, top) {
    const { pen } = this;
    pen.fillStyle = job.id === this.chosen ? colour.soft : colour.paper;
    pen.fillRect(0, top, GUTTER, ROW);
    write(pen, short(job.id), job.group ? 16 : 4, top + ROW / 2, colour.ink, GUTTER * 0.42);
    write(pen, job.words, GUTTER * 0.45, top + ROW / 2, tone(job), GUTTER * 0.53);
  }

  drawJob(job, top, now) {
    const { pen, axis } = this;
    const middle = top + ROW / 2;
    pen.fillStyle = colour.soft;
    if (job.id === this.chosen) pen.fillRect(GUTTER, top, axis.width, ROW);
    for (const segment of job.segments) {
      const to = segment.to === Infinity ? now : segment.to;
      if (to >= axis.from && segment.from <= axis.to) this.drawSegment(job, segment, to, middle, now);
    }
    if (job.finished_at !== null) {
      if (job.given_p90_at !== null) line(pen, axis.x(job.given_p90_at), top + 2, axis.x(job.given_p90_at), top + ROW - 2, colour.ink);
      write(pen, ENDS[job.standing] ?? "■", axis.x(job.finished_at) + 2, middle + 1, tone(job));
    } else if (job.p90_at !== null && job.state !== "refused") {
      const [x50, x90] = [axis.x(job.p50_at ?? job.p90_at), axis.x(job.p90_at)];
      line(pen, x50, middle, x90, middle, colour.ink);
      line(pen, x90, middle - 4, x90, middle + 4, colour.ink);
      if (job.p50_at !== null) write(pen, "●", x50 - 3, middle, colour.ink);
    }
    if (job.deadline_at !== null) this.drawFlag(job, axis.x(job.deadline_at), top);
  }

  drawSegment(job, { from, width, kind, to: end }, to, middle, now) {
    const { pen, axis } = this;
    const left = Math.max(GUTTER - 2, axis.x(kind === "will" || kind === "guess" ? Math.max(from, now) : from));
    const wide = Math.max(1, Math.min(axis.width + 2, axis.x(to)) - left);
    if (kind === "stop") {
      line(pen, left, middle, left + wide, middle, colour.dim, 3);
    } else if (kind === "wait") {
      pen.fillStyle = this.hatch ?? "";
      pen.fillRect(left, middle - 4, wide, 8);
    } else {
      const level = Math.min(16, 2 ** Math.floor(Math.log2(width)));
      pen.globalAlpha = { run: 1, will: 0.4, guess: 0.22 }[kind];
      pen.fillStyle = colour[`w${level}`];
      pen.fillRect(left, middle - 6, wide, 12);
      pen.globalAlpha = 1;
      if (job.borrowed_gpus && end === Infinity) line(pen, left, middle + 6, left + wide, middle + 6, colour.lent, 3);
      const ink = kind === "run" && level >= 4 ? colour.paper : colour.ink;
      if (wide > 18) write(pen, String(width), left + 4, middle + 1, ink);
    }
  }

  /** Full for a promise. */
  drawFlag(job, x, top) {
    const { pen } = this;
    const inDanger = BAD.includes(job.standing);
    const shade = inDanger ? colour.bad : job.verdict === "promised" ? colour.good : colour.dim;
    const flag = new Path2D(`M${x} ${top + 2}l8 3.5l-8 3.5`);
    line(pen, x, top + 2, x, top + ROW - 2, shade);
    pen.fillStyle = shade;
    if (job.verdict === "promised") pen.fill(flag);
    else pen.stroke(flag);
    if (inDanger && job.finished_at === null) write(pen, "!", x + 10, top + 7, shade);
  }
}

/** The colour of a job's words. */
const tone = (job) => BAD.includes(job.standing) ? colour.bad : job.standing === "kept" ? colour.good : colour.dim;

/** @returns {CanvasPattern | null} */
function hatching(pen) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const ink = tile.getContext("2d");
  for (const x of [-6, 0, 6]) line(ink, x, 6, x + 6, 0, colour.dim, 1);
  return pen.createPattern(tile, "repeat");
}
