// One run: its rows, its memory under them, and everything that pointer and keys do there.

class Panel {
  constructor(run, view, group) {
    this.run = run;
    this.view = view;
    this.group = group;  // what the panels share
    this.hot = null;     // the node that is pointed at or chosen
    this.row = rowOf(run);
    this.height = this.row.height;  // of a rank, its sums included
    this.rows = element('canvas', {'aria-hidden': 'true'});
    this.memory =
        group.hasMemory ? element('canvas', {class: 'memory', 'aria-hidden': 'true'}) : null;
    this.cursor = element('div', {class: 'cursor', hidden: true});
    // Before they are drawn, so that the page has its length from the beginning.
    this.rows.style.height = run.lanes.length * this.height + 'px';
    if (this.memory) this.memory.style.height = MEMORY_HEIGHT + 'px';
    this.plot = element(
        'div', {
          class: 'plot',
          tabindex: '0',
          role: 'group',
          'aria-roledescription': 'timeline',
          'aria-label':
              `Timeline of ${run.info.schedule}, ${run.lanes.length} ranks. Up and down ` +
              'choose a rank, comma and full stop an op, plus and minus zoom, left and right move.',
        },
        this.rows, this.memory || '', this.cursor);
    this.figure = element(
        'figure', {class: 'panel', 'data-schedule': run.info.schedule}, this.caption(), this.plot);
    this.listen();
  }

  caption() {
    const info = this.run.info;
    const badge = (text, kind) => element('span', {class: 'badge ' + kind}, text);
    const fact = (name, value) =>
        element('span', {class: 'fact'}, name + ' ', element('b', {}, value));
    return element(
        'figcaption', {}, element('h3', {}, info.schedule),
        info.advised ? badge('advised', 'good') : '',
        !info.valid   ? badge('illegal', 'bad') :
            info.fits ? '' :
                        badge('does not fit', 'bad'),
        fact(info.rejection === null ? 'step' : `expected step at q = ${info.rejection}`,
             time(info.step_ns)), fact('makespan', time(info.makespan_ns)),
        fact('bubble rate', percent(info.bubble_rate)),
        this.group.hasMemory ? fact('peak', bytes(Math.max(...info.peak_bytes))) : '');
  }

  get width() {
    return state.printing ? 1000 : this.plot.clientWidth;
  }

  draw() {
    const width = this.width;
    if (width === 0) return;
    const context = contextOf(this.rows, width, this.run.lanes.length * this.height);
    this.painter = drawRows(context, this.run, this.view, width, this.row);
    this.drawEnd(context, width);
    if (this.hot && this.hot.sum)
      this.drawHotSum(context);
    else if (this.hot)
      this.drawHot(context);
    if (this.memory) drawMemory(this.memory, this.run, this.view, width);
  }

  // A line where the run ends.
  drawEnd(context, width) {
    const x = this.painter.x(this.run.end);
    if (x > width || x < GUTTER) return;
    context.fillStyle = colours.ink;
    context.fillRect(Math.min(x, width - 1.5), 0, 1.5, this.run.lanes.length * this.height - 1);
  }

  // The node and, joined by a line, the one it waited for.
  drawHot(context) {
    const box = (rank, i) => {
      const lane = this.run.lanes[rank];
      const x0 = Math.max(GUTTER, this.painter.x(lane.start[i]));
      const x1 = Math.min(this.width, Math.max(x0 + 2, this.painter.x(lane.end[i])));
      const y = rank * this.height;
      return {x0, x1, y, middle: y + this.row.ops / 2};
    };
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.75;
    const frame = (b) => context.strokeRect(b.x0, b.y + 0.5, b.x1 - b.x0, this.row.ops - 1);
    const mine = box(this.hot.rank, this.hot.index);
    frame(mine);
    if (!this.hot.cause) return;
    const cause = box(this.hot.cause.rank, this.hot.cause.node);
    context.setLineDash([3, 2]);
    frame(cause);
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(cause.x1, cause.middle);
    const bend = Math.max(12, (mine.x0 - cause.x1) / 2);
    context.bezierCurveTo(
        cause.x1 + bend, cause.middle, mine.x0 - bend, mine.middle, mine.x0, mine.middle);
    context.stroke();
  }

  // All that take part in it.
  drawHotSum(context) {
    const hot = this.hot.sum;
    const lane = this.run.sumLanes.indexOf(SUM_LANES[SUMS[hot.kind].lane]);
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.5;
    this.run.sums.forEach((sums, rank) => {
      if (!sums.some((sum) => sum.collective === hot.collective)) return;
      const x0 = Math.max(GUTTER, this.painter.x(hot.start));
      const x1 = Math.min(this.width, Math.max(x0 + 2, this.painter.x(hot.end)));
      const y = rank * this.height + this.row.lanes[lane];
      context.strokeRect(x0 - 0.5, y - 1, x1 - x0 + 1, this.row.lane + 2);
    });
  }

  timeAt(x) {
    return this.view.from + (x - GUTTER) / ((this.width - GUTTER) / this.view.span);
  }

  // The op under a point of the plot, or the one that an idle rank waits to begin; a validation
  // also from a few pixels beside it; on a lane of sums the sum.
  nodeAt(x, y) {
    const rank = Math.floor(y / this.height);
    if (x < GUTTER || rank < 0 || rank >= this.run.lanes.length) return null;
    const inRow = y - rank * this.height;
    if (this.row.lanes.length > 0 && inRow >= this.row.ops + 1)
      return this.sumAt(x, rank, inRow);
    const lane = this.run.lanes[rank];
    const i = lane.firstAfter(this.timeAt(x));
    for (const near of [i, i - 1, i - 2]) {
      if (near < 0 || near >= lane.count || !this.painter) continue;
      if (this.run.shapes[lane.shape[near]].kind !== KIND.validation) continue;
      if (Math.abs(this.painter.x(lane.start[near]) - x) <= 4) return this.run.node(rank, near);
    }
    return i < lane.count ? this.run.node(rank, i) : null;
  }

  // The nearest, within a few pixels.
  sumAt(x, rank, inRow) {
    const n = this.row.lanes.findLastIndex((top) => inRow >= top - 1);
    let [nearest, distance] = [null, 4];
    for (const sum of this.run.sums[rank]) {
      if (SUM_LANES[SUMS[sum.kind].lane] !== this.run.sumLanes[n]) continue;
      const [from, to] = [this.painter.x(sum.start), this.painter.x(sum.end)];
      const away = x < from ? from - x : x > to ? x - to : 0;
      if (away < distance) [nearest, distance] = [sum, away];
    }
    return nearest && {rank, sum: nearest};
  }

  listen() {
    const on = (name, handler, options) =>
        this.plot.addEventListener(name, handler.bind(this), options);
    on('pointermove', this.onMove);
    on('pointerleave', () => this.leave());
    on('pointerdown', this.onDown);
    on('pointerup', () => {
      this.drag = null;
    });
    on('pointercancel', () => {
      this.drag = null;
    });
    on('dblclick', (event) => this.view.zoom(2.5, this.timeAt(event.offsetX)));
    on('wheel', this.onWheel, {passive: false});
    on('keydown', this.onKey);
    on('blur', () => this.leave());
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.plot.focus({preventScroll: true});
    this.plot.setPointerCapture(event.pointerId);
    this.drag = {x: event.clientX, from: this.view.from, to: this.view.to};
  }

  onMove(event) {
    const box = this.plot.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    if (this.drag) {
      const shift = (this.drag.x - event.clientX) * this.view.span / (this.width - GUTTER);
      if (Math.abs(this.drag.x - event.clientX) > 2) {
        this.leave();
        this.view.show(this.drag.from + shift, this.drag.to + shift);
        return;
      }
    }
    this.group.moveCursors(x);
    if (y >= this.run.lanes.length * this.height)
      this.pointAtMemory(x, event);
    else
      this.point(this.nodeAt(x, y), event.clientX, event.clientY);
  }

  point(node, clientX, clientY) {
    const same = node && this.hot && node.rank === this.hot.rank &&
        node.index === this.hot.index && node.sum === this.hot.sum;
    this.hot = node;
    if (!same) this.draw();
    if (node)
      showTip(
          node.sum ? tipOfSum(this.run, node.rank, node.sum) : tipOf(node), clientX, clientY);
    else
      hideTip();
  }

  pointAtMemory(x, event) {
    const t = this.timeAt(x);
    if (x < GUTTER || !this.memory) return hideTip();
    const rank = memoryRankOf(this.run);
    const lane = this.run.lanes[rank];
    const i = Math.min(lane.firstAfter(t), lane.count - 1);
    const live = t < lane.start[i] ? this.run.memory(rank, i).before :
        t < lane.end[i]            ? this.run.memory(rank, i).during :
                                     this.run.memory(rank, i).after;
    const table = element('table', {});
    const add = (name, value) => table.append(
        element('tr', {}, element('th', {scope: 'row'}, name), element('td', {}, bytes(value))));
    add('live', live.reduce((all, value) => all + value, 0));
    live.forEach((value, c) => {
      if (value !== 0) add(words(DATA.memory_categories[c]), value);
    });
    showTip(
        [
          element(
              'p', {class: 'tip-title'}, element('b', {}, 'memory'),
              ` of rank ${rank} at ` + exactTime(Math.round(t))),
          table
        ],
        event.clientX, event.clientY);
  }

  leave() {
    this.group.moveCursors(null);
    hideTip();
    if (!this.hot) return;
    this.hot = null;
    this.draw();
  }

  // Without the focus the wheel scrolls the page, as it does everywhere else.
  onWheel(event) {
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
      event.preventDefault();
      const distance = event.deltaX || event.deltaY;
      this.view.pan(distance * this.view.span / (this.width - GUTTER));
    } else if (event.ctrlKey || event.metaKey || document.activeElement === this.plot) {
      event.preventDefault();
      const box = this.plot.getBoundingClientRect();
      const lines = event.deltaMode === 1 ? 30 : 1;
      this.view.zoom(
          Math.exp(-event.deltaY * lines * 0.002), this.timeAt(event.clientX - box.left));
    }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 1 : 0.15;
    const actions = {
      ArrowLeft: () => this.view.pan(-far * this.view.span),
      ArrowRight: () => this.view.pan(far * this.view.span),
      ArrowUp: () => this.choose(-1, 0),
      ArrowDown: () => this.choose(1, 0),
      ',': () => this.choose(0, -1),
      '.': () => this.choose(0, 1),
      '+': () => this.view.zoom(1.6),
      '=': () => this.view.zoom(1.6),
      '-': () => this.view.zoom(1 / 1.6),
      Home: () => this.view.fit(),
      0: () => this.view.fit(),
      Escape: () => this.leave(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  // By keys: `ranks` rows down, `nodes` ops on; starts in the middle of what is seen.
  choose(ranks, nodes) {
    const lanes = this.run.lanes;
    const middle = (this.view.from + this.view.to) / 2;
    const at = this.hot && !this.hot.sum ? this.hot : null;
    const rank =
        at ? Math.min(Math.max(at.rank + ranks, 0), lanes.length - 1) : memoryRankOf(this.run);
    const lane = lanes[rank];
    let index = at && at.rank === rank ? at.index + nodes :
                                         lane.firstAfter(at ? (at.start + at.end) / 2 : middle);
    index = Math.min(Math.max(index, 0), lane.count - 1);
    this.view.reveal(lane.start[index], lane.end[index]);
    this.hot = this.run.node(rank, index);
    this.group.showMemoryOf(rank);
    const box = this.plot.getBoundingClientRect();
    const x = this.painter ? this.painter.x(this.hot.start) : GUTTER;
    this.draw();
    showTip(
        tipOf(this.hot), box.left + Math.min(Math.max(x, GUTTER), this.width),
        box.top + rank * this.height + this.row.ops + 1);
    byId('spoken').textContent = spoken(this.hot);
  }
}
