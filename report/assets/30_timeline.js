// The rows of one run. Ops of a few pixels are drawn one by one, with a band and letters so that
// colour is never all there is. Where they are narrower they are added up: a column is then split,
// from top to bottom, into the shares of F, B, W, BW and so on, and what stays empty is idle; in
// rows too flat for that their colours are mixed.

const rowHeight = (ranks) => Math.max(3, Math.min(20, Math.floor(288 / ranks)));
const rowGap = (height) => (height < 7 ? 0 : 1);

// Where the lanes of a rank stand, from the top of its row: compute, `ops` high, and, where a run
// has any, the thin lanes of sums. `height` is from row to row.
function rowOf(run) {
  const ops = rowHeight(run.lanes.length);
  const lane = ops < 7 ? 2 : ops < 12 ? 3 : 5;
  const gap = rowGap(ops);
  const lanes = run.sumLanes.map((_, n) => ops + n * (lane + gap));
  const height = ops + lanes.length * (lane + gap) + (lanes.length > 0 && gap > 0 ? 2 : 0);
  return {ops: ops - gap, lanes, lane, height};
}

function colourOf(shape) {
  if (shape.kind === KIND.collective) return colours.coll;
  if (shape.kind === KIND.optimizer || shape.kind === KIND.rollback) return colours.tail;
  if (shape.kind === KIND.validation) return colours.verdict;
  if (shape.kind === KIND.other) return colours.faint;
  const of = (n) => {
    const colour = colours.passes[shape.passes[n]];
    return shape.chunks[n] === 0 ? colour : mix(colour, '#ffffff', 0.45);
  };
  return shape.kind === KIND.pair ? [of(0), of(1)] : of(0);
}

// F plain, B with a band above, W below, BW both; a pair is one half each. What is no part of the
// iteration that counts is hatched: dropped ops crossed, a rollback with stripes backwards.
function drawOp(context, shape, colour, x, y, width, height) {
  if (shape.kind === KIND.dropped || shape.kind === KIND.rollback) {
    drawHatched(context, shape.kind === KIND.dropped, colour, x, y, width, height);
    return;
  }
  if (Array.isArray(colour)) {
    const half = height / 2;
    context.fillStyle = colour[0];
    context.fillRect(x, y, width, half);
    context.fillStyle = colour[1];
    context.fillRect(x, y + half, width, height - half);
    return;
  }
  context.fillStyle = colour;
  context.fillRect(x, y, width, height);
  if (!hasOp(shape.kind) || height < 4 || width < 2.5) return;
  const band = Math.max(1, Math.min(3, height * 0.18));
  const pass = shape.passes[0];
  context.fillStyle = 'rgba(0, 0, 0, 0.36)';
  if (pass === 1 || pass === 3) context.fillRect(x, y, width, band);
  if (pass === 2 || pass === 3) context.fillRect(x, y + height - band, width, band);
}

function drawHatched(context, crossed, colour, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.fillStyle = crossed ? mix(colour, colours.row, 0.72) : mix(colour, colours.row, 0.45);
  context.fillRect(x, y, width, height);
  context.beginPath();
  for (let at = x - height; at < x + width; at += 5) {
    context.moveTo(at, y);
    context.lineTo(at + height, y + height);
    if (!crossed) continue;
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.stroke();
  context.strokeStyle = colours.faint;
  context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  context.restore();
}

// A validation takes no time: a line through its row, with a head that can be pointed at.
function drawValidation(context, x, y, height) {
  context.fillStyle = colours.verdict;
  context.fillRect(x - 0.75, y, 1.5, height);
  if (height < 7) return;
  context.beginPath();
  context.moveTo(x - 4, y);
  context.lineTo(x + 4, y);
  context.lineTo(x, y + 5);
  context.fill();
}

// Told apart by more than their place: buckets full, twins with bars across, a tied embedding with
// dots, what is validated hollow.
function drawSum(context, look, x, y, width, height) {
  const colour = look === 'verdict' ? colours.verdict : colours.sum;
  context.fillStyle = colour;
  context.fillRect(x, y, width, height);
  context.fillStyle = colours.row;
  if (look === 'verdict' && height > 3 && width > 3)
    context.fillRect(x + 1, y + 1, width - 2, height - 2);
  if (look === 'twin')
    for (let at = x + 3; at < x + width - 1; at += 4) context.fillRect(at, y, 1, height);
  if (look === 'tied' && height > 3)
    for (let at = x + 2; at < x + width - 2; at += 4) context.fillRect(at, y + 2, 2, height - 4);
}

// Where the shares of a column stand, from the top: each pass, of a rank's first stage and of its
// others, then dropped ops, collectives, the optimizer and the rest.
const SLOTS = 2 * PASSES.length + KIND.other - KIND.dropped + 1;

function slotsOf(shape) {
  if (shape.kind >= KIND.dropped) return [2 * PASSES.length + shape.kind - KIND.dropped];
  const of = (n) => 2 * shape.passes[n] + (shape.chunks[n] === 0 ? 0 : 1);
  return shape.kind === KIND.pair ? [of(0), of(1)] : [of(0)];
}

// As it lies in an ImageData on every machine there is a browser for: the red byte first.
const pixelOf = (r, g, b, alpha) => (((255 * alpha) << 24) | (b << 16) | (g << 8) | r) >>> 0;

class RowPainter {
  constructor(run, view, width, height) {
    this.run = run;
    this.view = view;
    this.width = width;
    this.height = height;
    this.scale = (width - GUTTER) / view.span;
    this.styles = run.shapes.map(colourOf);
    this.slots = run.shapes.map(slotsOf);
    this.validates = run.shapes.some((shape) => shape.kind === KIND.validation);
    // Ops until a rank's order repeats, more or less: one of each shape it has.
    this.cycle = Math.max(
        1,
        Math.min(
            9, run.shapes.filter((shape) => shape.kind <= KIND.pair).length / run.lanes.length));
    this.slotColours = new Array(SLOTS).fill([0, 0, 0]);
    this.slots.forEach((slots, i) => slots.forEach((slot, n) => {
      const colour = [this.styles[i]].flat()[n];
      const kind = run.shapes[i].kind;
      this.slotColours[slot] =
          rgbOf(kind === KIND.dropped ? mix(colours.faint, colours.row, 0.5) : colour);
    }));
  }

  x(t) {
    return GUTTER + (t - this.view.from) * this.scale;
  }

  // Pixels from one op to the next, over all that is seen.
  findPitch() {
    const seen = this.run.lanes.reduce(
        (sum, lane) => sum + lane.firstAfter(this.view.to) - lane.firstAfter(this.view.from) + 1,
        0);
    const length = Math.min(this.run.end, this.view.to) - this.view.from;
    this.pitch = Math.max(0, length) * this.scale * this.run.lanes.length / seen;
  }

  row(context, lane, y, ratio, sums) {
    const addsUp = this.pitch < 2.5;
    const last = this.width - GUTTER;
    sums.fill(0);
    for (let i = lane.firstAfter(this.view.from); i < lane.count; ++i) {
      const x0 = Math.max(0, (lane.start[i] - this.view.from) * this.scale);
      if (x0 > last) break;
      const x1 = Math.min(last, (lane.end[i] - this.view.from) * this.scale);
      if (addsUp) {
        this.add(sums, x0 * ratio, x1 * ratio, this.slots[lane.shape[i]]);
      } else {
        if (x1 > x0) this.draw(context, lane, i, GUTTER + x0, GUTTER + x1, y);
        if (lane.transfer[i] > 0) this.transfer(context, lane, i, y);
      }
    }
    if (addsUp) this.flush(context, sums, y, ratio);
    if (this.validates) this.validations(context, lane, y);
  }

  validations(context, lane, y) {
    for (let i = Math.max(0, lane.firstAfter(this.view.from) - 1); i < lane.count; ++i) {
      if (lane.start[i] > this.view.to) break;
      if (this.run.shapes[lane.shape[i]].kind !== KIND.validation) continue;
      const x = this.x(lane.start[i]);
      if (x >= GUTTER) drawValidation(context, x, y, this.height);
    }
  }

  // At least a pixel each, so that none is lost; there are few of them.
  sums(context, rank, row, y) {
    for (const sum of this.run.sums[rank]) {
      const x0 = Math.max(GUTTER, this.x(sum.start));
      const x1 = Math.min(this.width, this.x(sum.end));
      if (sum.end < this.view.from || sum.start > this.view.to) continue;
      const gap = x1 - x0 > 3 ? 0.75 : 0;
      const lane = this.run.sumLanes.indexOf(SUM_LANES[SUMS[sum.kind].lane]);
      const width = Math.max(1, x1 - x0 - gap);
      drawSum(context, SUMS[sum.kind].look, x0, y + row.lanes[lane], width, row.lane);
    }
  }

  add(sums, x0, x1, slots) {
    for (let column = Math.floor(x0); column < x1; ++column) {
      const cover = (Math.min(x1, column + 1) - Math.max(x0, column)) / slots.length;
      for (const slot of slots) sums[column * SLOTS + slot] += cover;
    }
  }

  flush(context, sums, y, ratio) {
    const columns = sums.length / SLOTS;
    const height = Math.round(this.height * ratio);
    if (!this.strip) {
      this.strip = new OffscreenCanvas(columns, height);
      this.stripContext = this.strip.getContext('2d');
      this.image = this.stripContext.createImageData(columns, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.slotPixels = this.slotColours.map(([r, g, b]) => pixelOf(r, g, b, 1));
    }
    this.pixels.fill(0);
    this.eachMean(sums, columns, Math.round(this.cycle * this.pitch * ratio), (column, means) => {
      if (height < 9)
        this.mixColumn(means, column, columns, height);
      else
        this.splitColumn(means, column, columns, height);
    });
    this.stripContext.putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.strip, GUTTER, y, columns / ratio, height / ratio);
  }

  // The shares of each column, over a few ops around it: over fewer, chance would draw patterns.
  eachMean(sums, columns, window, visit) {
    const size = Math.max(1, Math.min(25, window));
    const means = new Float64Array(SLOTS);
    const add = (column, sign) => {
      if (column < 0 || column >= columns) return;
      for (let slot = 0; slot < SLOTS; ++slot) {
        means[slot] += sign * sums[column * SLOTS + slot] / size;
      }
    };
    const ahead = size >> 1;
    for (let column = 0; column < ahead; ++column) add(column, 1);
    for (let column = 0; column < columns; ++column) {
      add(column + ahead, 1);
      add(column + ahead - size, -1);
      visit(column, means);
    }
  }

  splitColumn(means, column, columns, height) {
    let all = 0;
    let from = 0;
    for (let slot = 0; slot < SLOTS; ++slot) {
      all += means[slot];
      const to = Math.min(height, Math.round(all * height));
      for (; from < to; ++from) this.pixels[from * columns + column] = this.slotPixels[slot];
    }
  }

  mixColumn(means, column, columns, height) {
    let [all, red, green, blue] = [0, 0, 0, 0];
    for (let slot = 0; slot < SLOTS; ++slot) {
      const colour = this.slotColours[slot];
      all += means[slot];
      red += means[slot] * colour[0];
      green += means[slot] * colour[1];
      blue += means[slot] * colour[2];
    }
    if (all < 1e-3) return;
    const pixel = pixelOf(red / all, green / all, blue / all, Math.min(1, all));
    for (let y = 0; y < height; ++y) this.pixels[y * columns + column] = pixel;
  }

  draw(context, lane, i, x0, x1, y) {
    const shape = this.run.shapes[lane.shape[i]];
    // A hair's breadth between ops, so that equal neighbours can be told apart; between parts of one
    // op a notch.
    const part = this.goesOn(lane, i);
    const gap = part ? 0 : x1 - x0 > 4 ? 0.75 : x1 - x0 > 2 ? 0.4 : 0;
    drawOp(context, shape, this.styles[lane.shape[i]], x0, y, x1 - x0 - gap, this.height);
    if (part && x1 - x0 > 2 && this.height >= 7) {
      context.fillStyle = colours.row;
      context.fillRect(x1 - 0.75, y, 0.75, this.height * 0.4);
    }
    if (x1 - x0 < 9 || this.height < 11) return;
    const label = this.label(shape, lane, i, x1 - x0 - 4);
    if (label === '') return;
    context.fillStyle = '#000';
    context.fillText(label, (x0 + x1 - gap) / 2, y + this.height / 2 + 0.5);
  }

  // Is what follows at once, but for its launch, the next part of the same op?
  goesOn(lane, i) {
    const shape = this.run.shapes[lane.shape[i]];
    if (shape.kind !== KIND.part || i + 1 >= lane.count) return false;
    const next = this.run.shapes[lane.shape[i + 1]];
    return next.kind === KIND.part && next.stages[0] === shape.stages[0] &&
        next.part.index === shape.part.index + 1 &&
        lane.microBatch[i + 1] === lane.microBatch[i] &&
        lane.start[i + 1] - lane.launch[i + 1] === lane.end[i];
  }

  // The longest name that fits: "9F12", "F12", "F"; of the second part of an op "W12·2".
  label(shape, lane, i, room) {
    if (shape.kind === KIND.optimizer) return room > 6 ? 'O' : '';
    if (shape.kind === KIND.rollback || shape.kind === KIND.dropped) return '';
    if (!hasOp(shape.kind)) return '';
    const short = PASSES[shape.passes[0]] + lane.microBatch[i];
    const second =
        shape.kind === KIND.pair ? '&' + PASSES[shape.passes[1]] + lane.microBatch2[i] : '';
    const names =
        [short + second, PASSES[shape.passes[0]] + (second && '&' + PASSES[shape.passes[1]])];
    if (this.run.severalStages && !second) names.unshift(shape.stages[0] + short);
    if (shape.part) names.unshift(...names.map((name) => `${name}·${shape.part.index + 1}`));
    return names.find((name) => name.length * 6.4 <= room) || '';
  }

  // The part of a wait in which the input was on its way: a dashed line.
  transfer(context, lane, i, y) {
    const to = this.x(lane.start[i] - lane.launch[i]);
    const from = to - lane.transfer[i] * this.scale;
    if (to - from < 1.5) return;
    context.fillStyle = colours.transfer;
    for (let x = Math.max(from, GUTTER); x < to; x += 4) {
      context.fillRect(x, y + this.height / 2 - 1, Math.min(2.5, to - x), 2);
    }
  }
}

function drawRows(context, run, view, width, row) {
  const painter = new RowPainter(run, view, width, row.ops);
  painter.findPitch();
  const ratio = context.getTransform().a;
  const sums = new Float32Array(SLOTS * Math.ceil((width - GUTTER + 2) * ratio));
  context.textAlign = 'center';
  context.textBaseline = 'middle';
  for (let r = 0; r < run.lanes.length; ++r) {
    const y = r * row.height;
    context.fillStyle = colours.row;
    context.fillRect(GUTTER, y, width - GUTTER, row.ops);
    for (const lane of row.lanes) context.fillRect(GUTTER, y + lane, width - GUTTER, row.lane);
    context.font = '10px ' + FONT;
    painter.row(context, run.lanes[r], y, ratio, sums);
    if (row.lanes.length > 0) painter.sums(context, r, row, y);
  }
  drawRankNames(context, run, row);
  return painter;
}

function drawRankNames(context, run, row) {
  const every = Math.max(1, Math.ceil(13 / row.height));
  context.font = '11px ' + FONT;
  context.textAlign = 'right';
  for (let r = 0; r < run.lanes.length; r += every) {
    const chosen = r === memoryRankOf(run);
    context.fillStyle = chosen ? colours.ink : colours.faint;
    context.fillText(
        (r === 0 ? 'rank ' : '') + r, GUTTER - 8,
        r * row.height + Math.max(row.ops + rowGap(row.ops + 1), 11) / 2);
  }
}
