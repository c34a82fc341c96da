// Live memory of one rank, by category, on the time axis of the timelines.

const MEMORY_HEIGHT = 74;
const memoryRankOf = (run) =>
    (state.memoryRank < 0 ? run.info.fullest_rank :
                            Math.min(state.memoryRank, run.lanes.length - 1));

// One scale for all runs. Where a limit is far exceeded the rest is cut off, or nothing would be
// seen of those runs that fit.
function memoryScale() {
  const peak = Math.max(0, ...PLAYED.map((run) => Math.max(...run.peak_bytes)));
  const limit = DATA.memory_limit_bytes;
  const near = limit !== null && limit < 1.5 * peak;
  return {peak, top: 1.08 * (near ? Math.max(Math.min(peak, 1.5 * limit), limit) : peak), limit};
}

// For each column of pixels the node, and the side of it, at which most is live. Side 0: while it
// runs, 1: after it.
function fullestByColumn(run, rank, view, columns) {
  const lane = run.lanes[rank];
  const ledger = run.ledger(rank);
  const k = run.categories;
  const total = new Float64Array(columns).fill(-1);
  const at = new Int32Array(columns).fill(-1);
  const scale = columns / view.span;
  const cover = (from, to, bytesThere, key) => {
    const first = Math.max(0, Math.floor((from - view.from) * scale));
    const last = Math.min(columns - 1, Math.ceil((to - view.from) * scale) - 1);
    for (let c = first; c <= last; ++c) {
      if (bytesThere > total[c]) {
        total[c] = bytesThere;
        at[c] = key;
      }
    }
  };
  const sum = (i) => {
    let all = 0;
    for (let c = 0; c < k; ++c) all += ledger[i * k + c];
    return all;
  };
  let i = Math.max(0, lane.firstAfter(view.from));
  let before = sum(i);
  cover(i === 0 ? 0 : lane.end[i - 1], i < lane.count ? lane.start[i] : run.end, before, 2 * i - 1);
  for (; i < lane.count && lane.start[i] <= view.to; ++i) {
    const start = run.changes[lane.change[i]].start;
    let during = before;
    for (let c = 0; c < k; ++c) during += start[c];
    cover(lane.start[i], lane.end[i], during, 2 * i);
    before = sum(i + 1);
    const next = i + 1 < lane.count ? lane.start[i + 1] : run.end;
    cover(lane.end[i], next, before, 2 * i + 1);
  }
  return {total, at};
}

// What one key of fullestByColumn stands for.
function memoryAt(run, rank, key) {
  const i = key >> 1;
  return key % 2 === 0 ?
      run.memory(rank, i).during :
      run.ledger(rank).subarray((i + 1) * run.categories, (i + 2) * run.categories);
}

const HATCHED = new Set(['waiting_for_w', 'communication', 'workspace']);
const STRIPED = new Set(['gradients']);  // between parameters and optimizer, as grey as they are

function drawMemory(canvas, run, view, width) {
  const context = contextOf(canvas, width, MEMORY_HEIGHT);
  const scale = memoryScale();
  const bottom = MEMORY_HEIGHT - 1;
  const perByte = (bottom - 4) / scale.top;
  const rank = memoryRankOf(run);
  const columns = Math.max(1, Math.round(width - GUTTER));
  const {total, at} = fullestByColumn(run, rank, view, columns);
  context.fillStyle = colours.row;
  context.fillRect(GUTTER, 0, width - GUTTER, MEMORY_HEIGHT);
  for (let c = 0; c < columns;) {
    let next = c + 1;
    while (next < columns && at[next] === at[c]) ++next;
    if (total[c] >= 0)
      drawColumn(context, memoryAt(run, rank, at[c]), c, next - c, bottom, perByte);
    c = next;
  }
  drawMemoryScale(context, scale, run, width, bottom, perByte);
}

function drawColumn(context, categories, c, width, bottom, perByte) {
  let base = bottom;
  categories.forEach((value, i) => {
    if (value <= 0) return;
    const name = DATA.memory_categories[i];
    const height = value * perByte;
    context.fillStyle = colours['m-' + name];
    context.fillRect(GUTTER + c, base - height, width, height);
    base -= height;
    // Lines across, so that what waits for W differs by more than its colour.
    if (STRIPED.has(name)) {
      context.fillStyle = 'rgba(0, 0, 0, 0.25)';
      for (let x = Math.ceil(c / 4) * 4; x < c + width; x += 4)
        context.fillRect(GUTTER + x, base, 1, height);
    }
    if (!HATCHED.has(name)) return;
    context.fillStyle = 'rgba(0, 0, 0, 0.34)';
    for (let y = Math.ceil(base / 4) * 4; y < base + height; y += 4) {
      context.fillRect(GUTTER + c, y, width, 1);
    }
  });
}

function drawMemoryScale(context, scale, run, width, bottom, perByte) {
  const rank = memoryRankOf(run);
  const peak = run.info.peak_bytes[rank];
  const y = bottom - peak * perByte;
  context.font = '10.5px ' + FONT;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  context.fillStyle = colours.faint;
  context.fillText(bytes(peak), GUTTER - 6, Math.min(Math.max(7, y), bottom - 22));
  if (y < 0) context.fillText('cut off ↑', GUTTER - 6, 20);
  context.fillText('rank ' + rank, GUTTER - 6, bottom - 8);
  drawLimit(context, scale, width, bottom, perByte);
}

function drawLimit(context, scale, width, bottom, perByte) {
  if (scale.limit === null || scale.limit > scale.top) return;
  const y = Math.round(bottom - scale.limit * perByte) + 0.5;
  // On a line of paper, since it crosses whatever is drawn there.
  for (const [colour, thickness, dashes] of [
           [colours.paper, 3, []], [colours.limit, 1.25, [6, 4]]]) {
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.setLineDash(dashes);
    context.beginPath();
    context.moveTo(GUTTER, y);
    context.lineTo(width, y);
    context.stroke();
  }
  context.setLineDash([]);
  context.fillStyle = colours.limit;
  context.fillText('limit ' + bytes(scale.limit), width - 4, y > 14 ? y - 8 : y + 9);
}
