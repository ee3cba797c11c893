// GPUs over time below the lanes, on their axis: those that there are, used, promised.

import { GUTTER, colours, line, prepare } from "./lanes.js";

/** @typedef {import("./jobs.js").Job} Job @typedef {{at: number[], value: number[]}} Steps */

/** Sums of what begins and ends, as steps. @param {[number, number][]} changes @returns {Steps} */
function steps(changes) {
  changes.sort((a, b) => a[0] - b[0]);
  /** @type {Steps} */
  const made = { at: [], value: [] };
  let sum = 0;
  for (const [at, change] of changes) {
    sum += change;
    if (made.at.at(-1) === at) made.value[made.value.length - 1] = sum;
    else {
      made.at.push(at);
      made.value.push(sum);
    }
  }
  return made;
}

export class Strip {
  /** @param {HTMLElement} box @param {import("./lanes.js").Axis} axis */
  constructor(box, axis) {
    this.box = box;
    this.axis = axis;
    this.canvas = /** @type {HTMLCanvasElement} */ (box.querySelector("canvas"));
    this.used = this.promised = this.there = /** @type {Steps} */ ({ at: [], value: [] });
    this.most = 1;
  }

  /** @param {Job[]} jobs @param {any} cluster @param {number} now */
  show(jobs, cluster, now) {
    /** @type {[number, number][]} */
    const used = [];
    /** @type {[number, number][]} */
    const promised = [];
    for (const job of jobs) {
      for (const { from, to, width, kind } of job.segments) {
        const [gpus, until] = [width * job.gpus, Math.min(to, kind === "run" ? now : Infinity)];
        if (kind === "run") used.push([from, gpus], [until, -gpus]);
        if (job.verdict === "promised" && (kind === "run" || kind === "will")) promised.push([from, gpus], [until, -gpus]);
      }
    }
    [this.used, this.promised] = [steps(used), steps(promised)];
    this.there = { at: [-1e12], value: [cluster.total] };
    this.most = Math.max(1, cluster.total, ...this.used.value, ...this.promised.value);
    this.noun = cluster.noun;
  }

  /** @param {number} now */
  draw(now) {
    const [width, height] = [this.box.clientWidth, this.box.clientHeight];
    if (!width) return;
    const pen = prepare(this.canvas, width, height);
    const colour = colours();
    pen.fillStyle = colour.paper;
    pen.fillRect(0, 0, width, height);
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, 0, width - GUTTER, height);
    pen.clip();
    this.trace(pen, this.used, height, now);
    pen.lineTo(this.axis.x(now), height);
    pen.fillStyle = colour.w2;
    pen.fill();
    this.stroke(pen, this.promised, height, colour.good, [4, 3]);
    this.stroke(pen, this.there, height, colour.ink, []);
    line(pen, this.axis.x(now), 0, this.axis.x(now), height, colour.now, 1.5);
    pen.restore();
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour.ink;
    const title = this.noun ?? "GPUs";
    [`─ ${this.most} ${title}`, "■ used", "┄ promised"].forEach((text, i) => {
      pen.fillStyle = [colour.ink, colour.w4, colour.good][i];
      pen.fillText(text, 8, 20 + 18 * i);
    });
  }

  /** @param {CanvasRenderingContext2D} pen @param {Steps} steps @param {number} height @param {string} colour @param {number[]} dash */
  stroke(pen, steps, height, colour, dash) {
    this.trace(pen, steps, height, Infinity);
    pen.setLineDash(dash);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.setLineDash([]);
  }

  /** A path of the steps that are seen; of several on one pixel, the last. @param {CanvasRenderingContext2D} pen
   * @param {Steps} steps @param {number} height @param {number} until */
  trace(pen, steps, height, until) {
    const y = (/** @type {number} */ value) => height - 2 - (value / this.most) * (height - 12);
    const { axis } = this;
    let i = 0;
    while (i + 1 < steps.at.length && steps.at[i + 1] <= axis.from) i++;
    let level = steps.at[i] <= axis.from ? steps.value[i] : 0;
    pen.beginPath();
    pen.moveTo(GUTTER, height);
    pen.lineTo(GUTTER, y(level));
    const end = Math.min(axis.to, until);
    for (; i < steps.at.length && steps.at[i] <= end; i++) {
      const x = Math.max(GUTTER, axis.x(steps.at[i]));
      pen.lineTo(x, y(level));
      level = steps.value[i];
      pen.lineTo(x, y(level));
    }
    pen.lineTo(axis.x(end), y(level));
  }
}
