// A run, unpacked. The order of the numbers is that of report/html_pack.cc.

class Reader {
  constructor(base64) {
    const text = atob(base64);
    this.bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) this.bytes[i] = text.charCodeAt(i);
    this.at = 0;
  }
  // Not by shifts, which end at 32 bits.
  number() {
    let value = 0;
    for (let unit = 1;; unit *= 128) {
      const byte = this.bytes[this.at++];
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
  }
  signed() {
    const value = this.number();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }
  numbers(count) {
    return Array.from({length: count}, () => this.number());
  }
  signeds(count) {
    return Float64Array.from({length: count}, () => this.signed());
  }
}

// The nodes of one rank, one array for each of their properties.
class Lane {
  constructor(reader, run) {
    this.fixed = reader.signeds(run.categories);
    this.iterations = reader.numbers(run.iterations);  // nodes in each
    const n = this.count = this.iterations.reduce((sum, nodes) => sum + nodes, 0);
    this.shape = run.shapes.length > 65535 ? new Uint32Array(n) : new Uint16Array(n);
    this.microBatch = new Int32Array(n);
    this.microBatch2 = new Int32Array(n);
    this.start = new Float64Array(n);
    this.end = new Float64Array(n);
    this.change = new Uint32Array(n);
    this.launch = new Float64Array(n);
    this.transfer = new Float64Array(n);
    this.causeRank = new Int32Array(n).fill(-1);
    this.causeNode = new Int32Array(n);
  }

  iterationOf(i) {
    let iteration = 0;
    for (let end = this.iterations[0]; i >= end && iteration + 1 < this.iterations.length;)
      end += this.iterations[++iteration];
    return iteration;
  }

  // The first node that ends after `t`.
  firstAfter(t) {
    let [low, high] = [0, this.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > t)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
}

class Run {
  constructor(info, index) {
    this.info = info;
    this.index = index;
    this.ledgers = new Map();
    const reader = new Reader(info.packed);
    const ranks = reader.number();
    this.categories = reader.number();
    this.iterations = reader.number();
    this.shapes = Array.from({length: reader.number()}, () => {
      const [kind, ...rest] = reader.numbers(7);
      return {
        kind,
        passes: [rest[0] - 1, rest[1] - 1],
        stages: [rest[2], rest[4]],
        chunks: [rest[3], rest[5]],
        part: kind === KIND.part ? {index: reader.number(), count: reader.number()} : null
      };
    });
    this.changes = Array.from(
        {length: reader.number()},
        () => ({start: reader.signeds(this.categories), end: reader.signeds(this.categories)}));
    this.lanes = [];
    for (let r = 0; r < ranks; ++r) this.lanes.push(this.readLane(reader, ranks));
    this.sums = this.lanes.map(() => readSums(reader));
    this.sumLanes = SUM_LANES.filter(
        (_, n) => this.sums.some((sums) => sums.some((sum) => SUMS[sum.kind].lane === n)));
    this.end = Math.max(
        ...this.lanes.map((lane) => (lane.count ? lane.end[lane.count - 1] : 0)),
        ...this.sums.flat().map((sum) => sum.end));
    this.severalStages = this.shapes.some((s) => s.chunks[0] > 0 || s.chunks[1] > 0);
    info.packed = true;  // the text is not needed any more
  }

  readLane(reader, ranks) {
    const lane = new Lane(reader, this);
    const last = this.shapes.map(() => ({first: 0, second: 0, duration: 0}));
    const lastCause = new Float64Array(ranks);
    let free = 0;
    for (let i = 0; i < lane.count; ++i) {
      const shape = lane.shape[i] = reader.number();
      const kind = this.shapes[shape].kind;
      const of = last[shape];
      if (hasOp(kind)) lane.microBatch[i] = of.first += reader.signed();
      if (kind === KIND.pair) lane.microBatch2[i] = of.second += reader.signed();
      const gap = reader.signed();
      of.duration += reader.signed();
      lane.start[i] = free + gap;
      free = lane.end[i] = lane.start[i] + of.duration;
      lane.change[i] = reader.number();
      if (gap === 0) continue;
      lane.launch[i] = reader.number();
      lane.transfer[i] = reader.number();
      const cause = reader.number() - 1;
      if (cause < 0) continue;
      lane.causeRank[i] = cause;
      lane.causeNode[i] = lastCause[cause] += reader.signed();
    }
    return lane;
  }

  // Live memory of a rank: after node i stands at (i + 1) * categories.
  ledger(rank) {
    if (!this.ledgers.has(rank)) {
      const lane = this.lanes[rank];
      const k = this.categories;
      const after = new Float64Array((lane.count + 1) * k);
      after.set(lane.fixed);
      for (let i = 0; i < lane.count; ++i) {
        const change = this.changes[lane.change[i]];
        for (let c = 0; c < k; ++c) {
          after[(i + 1) * k + c] = after[i * k + c] + change.start[c] + change.end[c];
        }
      }
      this.ledgers.set(rank, after);
    }
    return this.ledgers.get(rank);
  }

  // By category, before a node, while it runs, and after it.
  memory(rank, i) {
    const ledger = this.ledger(rank);
    const k = this.categories;
    const before = ledger.subarray(i * k, (i + 1) * k);
    const start = this.changes[this.lanes[rank].change[i]].start;
    return {
      before,
      during: before.map((value, c) => value + start[c]),
      after: ledger.subarray((i + 1) * k, (i + 2) * k)
    };
  }

  // "2F5", or "(0F7;7BW3)" of a pair.
  name(rank, i) {
    const lane = this.lanes[rank];
    const shape = this.shapes[lane.shape[i]];
    const op = (n, microBatch) => shape.stages[n] + PASSES[shape.passes[n]] + microBatch;
    switch (shape.kind) {
      case KIND.op:
        return op(0, lane.microBatch[i]);
      case KIND.pair:
        return `(${op(0, lane.microBatch[i])};${op(1, lane.microBatch2[i])})`;
      case KIND.part:
        return `part ${shape.part.index + 1} of ${shape.part.count} of ` +
            op(0, lane.microBatch[i]);
      case KIND.dropped:
        return 'dropped ' + op(0, lane.microBatch[i]);
      case KIND.collective:
        return 'barrier';
      default:
        return KIND_NAMES[shape.kind];
    }
  }

  describe(rank, i) {
    const lane = this.lanes[rank];
    const shape = this.shapes[lane.shape[i]];
    const op = (n, microBatch) =>
        `${PASS_WORDS[shape.passes[n]]} of stage ${shape.stages[n]}, micro-batch ${microBatch}`;
    switch (shape.kind) {
      case KIND.op:
        return op(0, lane.microBatch[i]);
      case KIND.pair:
        return op(0, lane.microBatch[i]) + '; ' + op(1, lane.microBatch2[i]);
      case KIND.part:
        return `fills gradient bucket ${shape.part.index}; ` + op(0, lane.microBatch[i]);
      case KIND.dropped:
        return op(0, lane.microBatch[i]) +
            '; it ran on parameters that were then rejected, and runs again';
      default:
        return KIND_WORDS[shape.kind];
    }
  }

  // Everything about one node, as the tip and the screen reader have it.
  node(rank, i) {
    const lane = this.lanes[rank];
    const free = i === 0 ? 0 : lane.end[i - 1];
    const gap = lane.start[i] - free;
    const cause = lane.causeRank[i] < 0 ? null : {
      rank: lane.causeRank[i],
      node: lane.causeNode[i],
      name: this.name(lane.causeRank[i], lane.causeNode[i])
    };
    return {
      rank,
      index: i,
      name: this.name(rank, i),
      what: this.describe(rank, i),
      iteration: lane.iterationOf(i),
      kind: this.shapes[lane.shape[i]].kind,
      start: lane.start[i],
      end: lane.end[i],
      gap,
      launch: lane.launch[i],
      transfer: lane.transfer[i],
      dependency: gap - lane.launch[i] - lane.transfer[i],
      cause,
      held: cause === null && gap > 0 ? this.heldBy(rank, lane.start[i] - lane.launch[i]) : null,
      memory: this.memory(rank, i)
    };
  }

  // The sum that ended when a node without a message could begin, if one did.
  heldBy(rank, at) {
    return this.sums[rank].find((sum) => sum.end === at && sum.duration > 0) || null;
  }
}

// Sums on communication lanes, which run beside compute.
function readSums(reader) {
  const lastEnd = SUMS.map(() => 0);
  let collective = 0;
  return Array.from({length: reader.number()}, () => {
    const [kind, iteration, stage, bucket, size] = reader.numbers(5);
    collective += reader.signed();
    const start = lastEnd[kind] + reader.signed();
    const [waited, duration] = reader.numbers(2);
    const end = lastEnd[kind] = start + duration;
    return {
      kind,
      iteration,
      stage: stage - 1,
      bucket: bucket - 1,
      bytes: size,
      collective,
      start,
      end,
      waited,
      duration
    };
  });
}
