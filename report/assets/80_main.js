// Puts the page together.

function swatchCanvas(shape, colour) {
  const canvas = element('canvas', {class: 'swatch', 'aria-hidden': 'true'});
  const context = contextOf(canvas, 22, 14);
  if (shape.kind === KIND.validation)
    drawValidation(context, 11, 0, 14);
  else
    drawOp(context, shape, colour, 0, 0, 22, 14);
  return canvas;
}

// Only what occurs. Parts of ops look like their ops.
function opLegend(runs) {
  const keyOf = (shape) => {
    if (shape.kind === KIND.op || shape.kind === KIND.part) return 'op' + shape.passes[0];
    return 'kind' + shape.kind;
  };
  const seen = new Map();
  for (const run of runs) {
    for (const shape of run.shapes) {
      if (!seen.has(keyOf(shape)) && shape.kind !== KIND.other) seen.set(keyOf(shape), shape);
    }
  }
  const names = {
    op0: 'F forward',
    op1: 'B input gradient',
    op2: 'W weight gradient',
    op3: 'BW both gradients',
    kind1: 'F&B overlapped',
    kind3: 'dropped: ran on rejected parameters',
    kind4: 'barrier',
    kind5: 'O optimizer',
    kind7: 'rollback: a rejected step taken back',
    kind6: 'validation'
  };
  const items = [...seen.keys()]
                    .sort((a, b) => Object.keys(names).indexOf(a) - Object.keys(names).indexOf(b))
                    .map((key) => {
                      const shape = {...seen.get(key), chunks: [0, 0]};
                      return element('li', {}, swatchCanvas(shape, colourOf(shape)), names[key]);
                    });
  if (runs.some((run) => run.severalStages))
    items.push(element('li', {}, 'paler: a rank’s later stages'));
  if (runs.some((run) => run.lanes.some((lane) => lane.transfer.some((t) => t > 0)))) {
    items.push(
        element('li', {}, element('i', {class: 'dash', 'aria-hidden': 'true'}), 'on its way'));
  }
  return element('ul', {class: 'legend short'}, ...items);
}

// Of the thin lanes under the ranks' rows.
function sumLegend(runs) {
  const used = SUMS.filter((_, kind) => runs.some(
                               (run) => run.sums.some((sums) => sums.some((s) => s.kind === kind))));
  if (used.length === 0) return '';
  return element(
      'ul', {class: 'legend short'}, element('li', {}, 'beside compute:'),
      ...used.map(({look, legend}) => {
        const canvas = element('canvas', {class: 'swatch thin', 'aria-hidden': 'true'});
        drawSum(contextOf(canvas, 22, 5), look, 0, 0, 22, 5);
        return element('li', {}, canvas, legend);
      }));
}

function memoryLegend(runs) {
  const used = DATA.memory_categories.filter(
      (_, c) => runs.some(
          (run) => run.lanes.some((lane) => lane.fixed[c] !== 0) ||
              run.changes.some((change) => change.start[c] !== 0 || change.end[c] !== 0)));
  return element(
      'ul', {class: 'legend short'},
      ...used.map(
          (name) => element(
              'li', {}, element('i', {class: 'swatch m-' + name, 'aria-hidden': 'true'}),
              words(name))));
}

class Timelines {
  constructor(host, runs) {
    this.runs = runs;
    this.view = new View(Math.max(...runs.map((run) => run.end)));
    this.hasMemory = memoryScale().peak > 0;
    this.axis = element('canvas', {class: 'axis', 'aria-hidden': 'true'});
    this.legends = element('div', {class: 'legends'});
    this.bar = element('div', {class: 'bar-top'}, this.toolbar(), this.axis);
    host.append(this.legends, this.bar);
    if (!this.hasMemory) {
      host.append(
          element('p', {class: 'quiet'}, 'The scenario gives no bytes, so no memory is drawn.'));
    }
    this.panels = runs.map((run) => new Panel(run, this.view, this));
    host.append(...this.panels.map((panel) => panel.figure));
    this.seen = new Set();
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const panel = this.panels.find((p) => p.figure === entry.target);
        if (entry.isIntersecting)
          this.seen.add(panel);
        else
          this.seen.delete(panel);
        if (entry.isIntersecting) panel.draw();
      }
    }, {rootMargin: '200px'});
    this.panels.forEach((panel) => observer.observe(panel.figure));
    this.view.listeners.push(() => this.drawSoon());
    new ResizeObserver(() => this.drawSoon()).observe(host);
    this.restyle();
  }

  toolbar() {
    const button = (text, label, action) => {
      const made = element('button', {type: 'button', 'aria-label': label}, text);
      made.addEventListener('click', action);
      return made;
    };
    this.range = element('span', {class: 'range', role: 'status'});
    const tools = element(
        'div', {class: 'toolbar', role: 'toolbar', 'aria-label': 'Time axis'},
        button('−', 'Zoom out', () => this.view.zoom(1 / 1.6)),
        button('+', 'Zoom in', () => this.view.zoom(1.6)),
        button('Fit', 'Show everything', () => this.view.fit()), this.range);
    if (this.hasMemory) tools.append(this.rankChooser());
    if (this.runs.length > 1) tools.append(this.scheduleChooser());
    return tools;
  }

  rankChooser() {
    this.chooser = element(
        'select', {id: 'memory-rank'}, element('option', {value: '-1'}, 'the fullest rank'),
        ...Array.from(
            {length: DATA.ranks}, (_, r) => element('option', {value: String(r)}, 'rank ' + r)));
    this.chooser.addEventListener('change', () => this.showMemoryOf(Number(this.chooser.value)));
    return element('label', {}, 'Memory of ', this.chooser);
  }

  scheduleChooser() {
    const boxes = this.runs.map((run, i) => {
      const box = element('input', {type: 'checkbox', checked: true});
      box.addEventListener('change', () => {
        this.panels[i].figure.hidden = !box.checked;
      });
      return element('label', {}, box, ' ' + run.info.schedule);
    });
    return element(
        'details', {class: 'chooser'}, element('summary', {}, 'Schedules'),
        element('div', {}, ...boxes));
  }

  showMemoryOf(rank) {
    state.memoryRank = rank;
    if (this.chooser) this.chooser.value = String(rank);
    this.drawSoon();
  }

  moveCursors(x) {
    for (const panel of this.panels) {
      panel.cursor.hidden = x === null || x < GUTTER;
      if (x !== null) panel.cursor.style.transform = `translateX(${x}px)`;
    }
  }

  drawSoon() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.draw(this.seen);
    });
  }

  draw(panels) {
    const begin = performance.now();
    const width = state.printing ? 1000 : this.axis.parentElement.clientWidth;
    if (width > 0) drawAxis(this.axis, this.view, width);
    this.range.textContent = this.view.inWords();
    for (const panel of panels) panel.draw();
    this.lastDrawMs = performance.now() - begin;
  }

  restyle() {
    readColours();
    this.legends.replaceChildren(
        opLegend(this.runs), sumLegend(this.runs), this.hasMemory ? memoryLegend(this.runs) : '');
    this.draw(this.seen);
  }
}

function restyleAll(timelines) {
  readColours();
  if (timelines) timelines.restyle();
}

function setUpTheme(timelines) {
  const button = byId('theme');
  const order = ['auto', 'light', 'dark'];
  const next = () => {
    const root = document.documentElement;
    const theme = order[(order.indexOf(root.dataset.theme || 'auto') + 1) % order.length];
    if (theme === 'auto')
      delete root.dataset.theme;
    else
      root.dataset.theme = theme;
    button.textContent = 'Theme: ' + theme;
    restyleAll(timelines);
  };
  button.addEventListener('click', next);
  matchMedia('(prefers-color-scheme: dark)')
      .addEventListener('change', () => restyleAll(timelines));
  return next;
}

function setUpPrinting(timelines) {
  const redraw = (printing) => {
    state.printing = printing;
    document.documentElement.classList.toggle('printing', printing);
    readColours();
    if (!timelines) return;
    timelines.restyle();
    timelines.draw(timelines.panels);
  };
  window.addEventListener('beforeprint', () => redraw(true));
  window.addEventListener('afterprint', () => redraw(false));
}

function setUpKeys(nextTheme) {
  const help = byId('help');
  const show = () => {
    if (!help.open) help.showModal();
  };
  byId('help-button').addEventListener('click', show);
  byId('help-close').addEventListener('click', () => help.close());
  document.addEventListener('keydown', (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === '?') show();
    if (event.key === 't' || event.key === 'T') nextTheme();
  });
}

function main() {
  readColours();
  const drawn = RUNS.filter((run) => run.step_ns !== undefined);
  const withWaterfall = drawn.filter((run) => run.waterfall_ns);
  const runs = PLAYED.map((info, i) => new Run(info, i));
  let timelines = null;
  const remove = (id) => byId(id).remove();
  if (withWaterfall.length > 0)
    new WaterfallView(byId('waterfall'), withWaterfall);
  else
    remove('steps');
  if (drawn.length > 0)
    stallCards(byId('bars'), drawn);
  else
    remove('stalls');
  if (runs.length > 0)
    timelines = new Timelines(byId('panels'), runs);
  else
    remove('timelines');
  setUpKeys(setUpTheme(timelines));
  setUpPrinting(timelines);
  // For the console, and for the tests of this page.
  window.spiritlevel = {data: DATA, runs, timelines, time, bytes};
}

main();
