// GPUs over time below the lanes, on their axis: those that there are, used, promised and lent.

import { clear, colour, GUTTER, line, penIn, within } from "./lanes.js";

/** Sums of what begins and ends, as steps. @returns {{at: number[], value: number[]}} */
function sums(changes) {
  changes.sort((a, b) => a[0] - b[0]);
  let sum = 0;
  return { at: changes.map(([at]) => Math.round(at)), value: changes.map(([, change]) => (sum += change)) };
}

export class Strip {
  constructor(box, axis) {
    this.box = box;
    this.axis = axis;
    this.pen = penIn(box);
  }

  show(jobs, { base_at: base, cluster, capacity, now }) {
    const [used, promised] = /** @type {number[][][]} */ ([[], []]);
    for (const job of jobs) {
      for (const { from, to, width, kind } of job.segments) {
        const gpus = width * job.gpus_per_worker;
        if (kind === "run") used.push([from, gpus], [to, -gpus]);
        if (job.verdict === "promised" && ["run", "will"].includes(kind)) promised.push([from, gpus], [to === Infinity ? now : to, -gpus]);
      }
    }
    this.used = sums(used);
    this.promised = sums(promised);
    const at = capacity.at.map((since, i) => (i ? since + base : 0)); // nothing is known from before
    this.there = { at, value: capacity.gpus };
    this.lent = { at, value: capacity.lent };
    this.most = [this.used, this.promised, this.there].flatMap((row) => row.value).reduce((a, b) => Math.max(a, b), 1);
    this.noun = `${cluster.total_gpus} ${cluster.noun}`;
  }

  draw(now) {
    const [width, height, { pen, axis }] = [this.box.clientWidth, this.box.clientHeight, this];
    if (!width) return;
    const isLending = this.lent.value.some(Boolean);
    clear(pen, width, height);
    within(pen, [GUTTER, 0, width, height], () => {
      this.trace(this.used, height, now);
      pen.lineTo(axis.x(Math.min(axis.to, now)), height);
      pen.fillStyle = colour.w2;
      pen.fill();
      this.stroke(this.promised, height, Infinity, colour.good, [4, 3]);
      if (isLending) this.stroke(this.lent, height, now, colour.lent, [1, 3]);
      this.stroke(this.there, height, Infinity, colour.ink, []);
      line(pen, axis.x(now), 0, axis.x(now), height, colour.now);
    });
    const legend = [["─", this.noun, colour.ink], ["■", "used", colour.w4], ["┄", "promised", colour.good]];
    if (isLending) legend.push(["┈", "lent by inference", colour.lent]);
    legend.forEach(([mark, text, shade], i) => {
      pen.fillStyle = shade;
      pen.fillText(`${mark} ${text}`, 8, 14 + 18 * i);
    });
  }

  stroke(steps, height, until, shade, dash) {
    this.trace(steps, height, until);
    this.pen.setLineDash(dash);
    [this.pen.strokeStyle, this.pen.lineWidth] = [shade, 1.5];
    this.pen.stroke();
    this.pen.setLineDash([]);
  }

  /** A path of the steps that are seen. */
  trace(steps, height, until) {
    const { pen, axis } = this;
    const y = (value) => height - 2 - (value / this.most) * (height - 12);
    let level = 0;
    pen.beginPath();
    pen.moveTo(GUTTER - 2, y(0));
    const end = Math.min(axis.to, until);
    for (let i = 0; i < steps.at.length && steps.at[i] <= end; i++) {
      const [x, next] = [axis.x(steps.at[i]), axis.x(steps.at[i + 1])].map((at) => Math.max(GUTTER - 2, Math.round(at)));
      if (x === next) continue; // of several on one pixel, the last
      pen.lineTo(x, y(level));
      pen.lineTo(x, y((level = steps.value[i])));
    }
    pen.lineTo(axis.x(end), y(level));
  }
}
