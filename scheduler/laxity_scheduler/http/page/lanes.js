// One lane a job on a time axis: past, now, future. Draws the lanes that can be seen, on a canvas.

import { clock } from "./words.js";

/** @typedef {import("./jobs.js").Job} Job @typedef {import("./jobs.js").Segment} Segment */

export const GUTTER = 290; // pixels for names and words
const ROW = 22;
const AXIS = 24;
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800];
const LEAST_SPAN_S = 10;
const MOST_SPAN_S = 90 * 86_400;

/** Which span is seen, and where an instant stands. Lanes and strip share one. */
export class Axis {
  /** @param {number} from @param {number} to */
  constructor(from, to) {
    this.from = from;
    this.to = to;
    this.width = 1;
  }

  /** @param {number} at */
  x(at) {
    return GUTTER + ((at - this.from) / (this.to - this.from)) * (this.width - GUTTER);
  }

  /** @param {number} x */
  at(x) {
    return this.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.to - this.from);
  }

  /** @param {number} factor @param {number} at stays where it is */
  zoom(factor, at) {
    const span = Math.min(MOST_SPAN_S, Math.max(LEAST_SPAN_S, (this.to - this.from) * factor));
    const share = (at - this.from) / (this.to - this.from);
    this.from = at - share * span;
    this.to = this.from + span;
  }

  /** @param {number} seconds */
  move(seconds) {
    this.from += seconds;
    this.to += seconds;
  }

  /** Instants of the axis's lines, at round local times. */
  ticks() {
    const least = ((this.to - this.from) / Math.max(1, this.width - GUTTER)) * 90;
    const step = STEPS.find((seconds) => seconds >= least) ?? 604_800;
    const zone = new Date(this.from * 1000).getTimezoneOffset() * 60;
    const made = [];
    for (let at = Math.ceil((this.from - zone) / step) * step + zone; at <= this.to; at += step) made.push(at);
    return made;
  }
}

/** A canvas in the pixels of the screen. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height */
export function prepare(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  return pen;
}

/** The colours of the style sheet, light or dark. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy(/** @type {Record<string, string>} */ ({}), {
    get: (known, /** @type {string} */ name) => (known[name] ??= style.getPropertyValue(`--${name}`).trim()),
  });
}

export class Lanes {
  /** @param {HTMLElement} box @param {Axis} axis */
  constructor(box, axis) {
    this.box = box;
    this.axis = axis;
    this.canvas = /** @type {HTMLCanvasElement} */ (box.querySelector("canvas"));
    this.spacer = /** @type {HTMLElement} */ (box.querySelector(".spacer"));
    /** @type {Job[]} */
    this.jobs = [];
    this.chosen = "";
    this.colour = colours();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.colour = colours()));
  }

  /** @param {Job[]} jobs */
  show(jobs) {
    this.jobs = jobs;
    this.spacer.style.height = `${Math.max(0, AXIS + jobs.length * ROW - this.box.clientHeight)}px`;
  }

  /** The job at a point of the canvas. @param {number} y @returns {Job | undefined} */
  jobAt(y) {
    return y < AXIS ? undefined : this.jobs[Math.floor((y - AXIS + this.box.scrollTop) / ROW)];
  }

  /** Scroll until the chosen job can be seen. */
  reveal() {
    const top = this.jobs.findIndex((job) => job.id === this.chosen) * ROW;
    const room = this.box.clientHeight - AXIS - ROW;
    if (top >= 0) this.box.scrollTop = Math.max(top - room, Math.min(this.box.scrollTop, top));
  }

  /** @param {number} now */
  draw(now) {
    const began = performance.now();
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!width) return;
    this.axis.width = width;
    this.canvas.style.height = `${height}px`;
    const pen = (this.pen = prepare(this.canvas, width, height));
    this.hatch = hatching(pen, this.colour.dim);
    pen.fillStyle = this.colour.paper;
    pen.fillRect(0, 0, width, height);
    const first = Math.floor(this.box.scrollTop / ROW);
    const last = Math.min(this.jobs.length, first + Math.ceil((height - AXIS) / ROW) + 1);
    const top = (/** @type {number} */ i) => AXIS + i * ROW - this.box.scrollTop;
    this.drawGrid(width, height, now);
    pen.save();
    clip(pen, GUTTER, AXIS, width - GUTTER, height - AXIS);
    for (let i = first; i < last; i++) this.drawJob(this.jobs[i], top(i), now);
    pen.restore();
    pen.save();
    clip(pen, 0, AXIS, GUTTER, height - AXIS);
    for (let i = first; i < last; i++) this.drawName(this.jobs[i], top(i));
    pen.restore();
    this.canvas.dataset.frameMs = (performance.now() - began).toFixed(2);
  }

  /** @param {number} width @param {number} height @param {number} now */
  drawGrid(width, height, now) {
    const { pen, axis, colour } = this;
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    for (const at of axis.ticks()) {
      line(pen, axis.x(at), AXIS - 4, axis.x(at), height, colour.line);
      pen.fillStyle = colour.dim;
      pen.fillText(clock(at, now), axis.x(at), AXIS / 2 - 2);
    }
    pen.textAlign = "left";
    if (axis.x(now) < GUTTER) return;
    line(pen, axis.x(now), AXIS - 8, axis.x(now), height, colour.now, 1.5);
    pen.fillStyle = colour.paper;
    pen.fillRect(axis.x(now) - 14, 2, 28, AXIS - 8);
    pen.fillStyle = colour.now;
    pen.fillText("now", axis.x(now) - 11, AXIS / 2 - 2);
  }

  /** @param {Job} job @param {number} top */
  drawName(job, top) {
    const { pen, colour } = this;
    pen.fillStyle = job.id === this.chosen ? colour.soft : colour.paper;
    pen.fillRect(0, top, GUTTER, ROW);
    pen.fillStyle = tone(job, colour);
    pen.fillText(fitting(pen, job.words, GUTTER * 0.55), GUTTER * 0.44, top + ROW / 2);
    pen.fillStyle = colour.paper === "" ? colour.ink : colour.ink;
    pen.fillText(fitting(pen, job.id.replace(/^default\//, ""), GUTTER * 0.42), 4, top + ROW / 2);
  }

  /** @param {Job} job @param {number} top @param {number} now */
  drawJob(job, top, now) {
    const { pen, axis, colour } = this;
    const middle = top + ROW / 2;
    if (job.id === this.chosen) {
      pen.fillStyle = colour.soft;
      pen.fillRect(GUTTER, top, axis.width - GUTTER, ROW);
    }
    for (const segment of job.segments) {
      const to = segment.to === Infinity ? now : segment.to;
      if (to >= axis.from && segment.from <= axis.to) this.drawSegment(job, segment, to, middle);
    }
    const isOpen = job.end === null;
    if (isOpen && job.p50 !== null && job.p90 !== null && job.state !== "refused") {
      line(pen, axis.x(job.p50), middle, axis.x(job.p90), middle, colour.ink, 1.2);
      line(pen, axis.x(job.p90), middle - 4, axis.x(job.p90), middle + 4, colour.ink, 1.2);
      pen.fillStyle = colour.ink;
      pen.beginPath();
      pen.arc(axis.x(job.p50), middle, 3, 0, 7);
      pen.fill();
    }
    if (!isOpen && job.given !== null) line(pen, axis.x(job.given), middle - 9, axis.x(job.given), middle + 9, colour.ink, 1.5);
    if (!isOpen) this.drawEnd(job, middle);
    if (job.deadline !== null) this.drawFlag(job, axis.x(job.deadline), top);
  }

  /** @param {Job} job @param {Segment} segment @param {number} to @param {number} middle */
  drawSegment(job, segment, to, middle) {
    const { pen, axis, colour } = this;
    const left = Math.max(GUTTER - 2, axis.x(segment.from));
    const wide = Math.max(1, Math.min(axis.width + 2, axis.x(to)) - left);
    if (segment.kind === "stop") return void line(pen, left, middle, left + wide, middle, colour.dim, 3);
    if (segment.kind === "wait") {
      pen.fillStyle = this.hatch;
      return void pen.fillRect(left, middle - 4, wide, 8);
    }
    const level = segment.width >= 16 ? 16 : 2 ** Math.floor(Math.log2(segment.width));
    pen.globalAlpha = segment.kind === "run" ? 1 : segment.kind === "will" ? 0.4 : 0.22;
    pen.fillStyle = colour[`w${level}`];
    pen.fillRect(left, middle - 6, wide, 12);
    pen.globalAlpha = 1;
    if (segment.kind === "will") {
      pen.strokeStyle = colour[`w${level}`];
      pen.lineWidth = 1;
      pen.strokeRect(left, middle - 6, wide, 12);
    }
    if (job.lent && segment.kind === "run" && segment.to === Infinity) line(pen, left, middle + 6, left + wide, middle + 6, colour.lent, 3);
    if (wide < 18) return;
    pen.fillStyle = segment.kind === "run" && level >= 4 ? colour.paper : colour.ink;
    pen.fillText(String(segment.width), left + 4, middle + 1);
  }

  /** How it ended, as a shape. @param {Job} job @param {number} middle */
  drawEnd(job, middle) {
    const shape = { kept: "✓", broken: "✗", late: "✗", failed: "!", cancelled: "∅" }[job.standing] ?? "■";
    this.pen.fillStyle = tone(job, this.colour);
    this.pen.fillText(shape, this.axis.x(job.end ?? 0) + 2, middle + 1);
  }

  /** @param {Job} job @param {number} x @param {number} top */
  drawFlag(job, x, top) {
    const { pen, colour } = this;
    const inDanger = ["endangered", "broken", "late"].includes(job.standing);
    const shade = inDanger ? colour.bad : job.verdict === "promised" ? colour.good : colour.dim;
    line(pen, x, top + 2, x, top + ROW - 2, shade, 1.5);
    pen.beginPath();
    pen.moveTo(x, top + 2);
    pen.lineTo(x + 8, top + 5.5);
    pen.lineTo(x, top + 9);
    pen.fillStyle = pen.strokeStyle = shade;
    if (job.verdict === "promised") pen.fill();
    else pen.stroke();
    if (inDanger) pen.fillText("!", x + 9, top + 7);
  }
}

/** @param {Job} job @param {Record<string, string>} colour */
function tone(job, colour) {
  if (["endangered", "broken", "late", "refused", "failed"].includes(job.standing)) return colour.bad;
  return job.standing === "kept" ? colour.good : colour.dim;
}

/** @param {CanvasRenderingContext2D} pen @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2
 * @param {string} colour @param {number} width */
export function line(pen, x1, y1, x2, y2, colour, width = 1) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} w @param {number} h */
function clip(pen, x, y, w, h) {
  pen.beginPath();
  pen.rect(x, y, w, h);
  pen.clip();
}

/** The text, or its beginning that fits. @param {CanvasRenderingContext2D} pen @param {string} text @param {number} room */
function fitting(pen, text, room) {
  const most = Math.floor(room / 5);
  let shown = text.length > most ? `${text.slice(0, most)}…` : text;
  while (shown.length > 2 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

/** @param {CanvasRenderingContext2D} pen @param {string} colour */
function hatching(pen, colour) {
  const tile = new OffscreenCanvas(6, 6);
  const ink = /** @type {OffscreenCanvasRenderingContext2D} */ (tile.getContext("2d"));
  ink.strokeStyle = colour;
  ink.beginPath();
  for (const x of [-6, 0, 6]) {
    ink.moveTo(x, 6);
    ink.lineTo(x + 6, 0);
  }
  ink.stroke();
  return /** @type {CanvasPattern} */ (pen.createPattern(tile, "repeat"));
}
